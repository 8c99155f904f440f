// SPDX-License-Identifier: Apache-2.0
// `inflight serve` of a build without the server (-DINFLIGHT_SERVER=OFF).
#include "command_line.h"
#include "commands.h"

namespace inflight::tool {

int ServeMain(Args) {
  return Fail(Unimplemented("this build has no server; configure with -DINFLIGHT_SERVER=ON"));
}

int TritonserverMain(Args args) { return ServeMain(args); }

int KeyMain(Args args) { return ServeMain(args); }

int MigrateMain(Args args) { return ServeMain(args); }

int ShadowMain(Args args) { return ServeMain(args); }

std::vector<config::OptionInfo> ServeOptionInfos() { return {}; }

std::vector<config::OptionInfo> ShadowOptionInfos() { return {}; }

std::vector<config::OptionInfo> MigrateOptionInfos() { return {}; }

}  // namespace inflight::tool
