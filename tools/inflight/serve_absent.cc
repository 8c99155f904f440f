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

int WorkerMain(Args args) { return ServeMain(args); }

int MigrateMain(Args args) { return ServeMain(args); }

int ShadowMain(Args args) { return ServeMain(args); }

int TopMain(Args args) { return ServeMain(args); }

int DoctorMain(Args args) { return ServeMain(args); }

Manual ServeManual() { return {}; }

Manual KeyManual() { return {}; }

Manual DoctorManual() { return {}; }

Manual ShadowManual() { return {}; }

Manual TopManual() { return {}; }

Manual MigrateManual() { return {}; }

}  // namespace inflight::tool
