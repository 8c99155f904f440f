// SPDX-License-Identifier: Apache-2.0
// The subcommands of `inflight`, a file each. Each takes the arguments after its name and returns
// the exit status.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/schema.h"

namespace inflight::tool {

using Args = std::span<char* const>;

int ServeMain(Args args);
int TritonserverMain(Args args);  // the same, where it is called so
int KeyMain(Args args);
int ShadowMain(Args args);
int RunMain(Args args);
int ChatMain(Args args);
int TokenizeMain(Args args);
int ConvertMain(Args args);
int BuildMain(Args args);
int AdapterMain(Args args);
int InspectMain(Args args);
int MigrateMain(Args args);
int CompatMain(Args args);
int BenchMain(Args args);
int BenchLoadMain(Args args);
int BenchThroughputMain(Args args);
int BenchLatencyMain(Args args);
int BenchMixesMain(Args args);

// Options of each command, for docs/configuration.md and the completion script.
std::vector<config::OptionInfo> ServeOptionInfos();
std::vector<config::OptionInfo> ShadowOptionInfos();
std::vector<config::OptionInfo> RunOptionInfos();
std::vector<config::OptionInfo> ChatOptionInfos();
std::vector<config::OptionInfo> TokenizeOptionInfos();
std::vector<config::OptionInfo> ConvertOptionInfos();
std::vector<config::OptionInfo> BuildOptionInfos();
std::vector<config::OptionInfo> AdapterOptionInfos();
std::vector<config::OptionInfo> InspectOptionInfos();
std::vector<config::OptionInfo> MigrateOptionInfos();
std::vector<config::OptionInfo> CompatOptionInfos();
std::vector<config::OptionInfo> BenchOptionInfos();
std::vector<config::OptionInfo> BenchLoadOptionInfos();
std::vector<config::OptionInfo> BenchThroughputOptionInfos();
std::vector<config::OptionInfo> BenchLatencyOptionInfos();
std::vector<config::OptionInfo> BenchMixesOptionInfos();

}  // namespace inflight::tool
