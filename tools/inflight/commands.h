// SPDX-License-Identifier: Apache-2.0
// The subcommands of `inflight`, a file each. Each takes the arguments after its name and returns
// the exit status.
#pragma once

#include <span>

#include "command_line.h"

namespace inflight::tool {

using Args = std::span<char* const>;

int ServeMain(Args args);
int TritonserverMain(Args args);  // the same, where it is called so
int PullMain(Args args);
int ListMain(Args args);
int RmMain(Args args);
int PsMain(Args args);
int SleepMain(Args args);
int WakeMain(Args args);
int KeyMain(Args args);
int DoctorMain(Args args);
int WorkerMain(Args args);
int ShadowMain(Args args);
int TopMain(Args args);
int RunMain(Args args);
int ChatMain(Args args);
int TokenizeMain(Args args);
int ConvertMain(Args args);
int BuildMain(Args args);
int AdapterMain(Args args);
int InspectMain(Args args);
int ReplayMain(Args args);
int VerifyMain(Args args);
int MigrateMain(Args args);
int CompatMain(Args args);
int BenchMain(Args args);
int BenchLoadMain(Args args);
int BenchThroughputMain(Args args);
int BenchLatencyMain(Args args);
int BenchMixesMain(Args args);
int BenchSleepMain(Args args);
int CompletionMain(Args args);
int ManMain(Args args);

// Usage and options of each command, for docs/configuration.md, manual pages and completion.
Manual ServeManual();
Manual PullManual();
Manual ListManual();
Manual RmManual();
Manual PsManual();
Manual SleepManual();
Manual WakeManual();
Manual KeyManual();
Manual DoctorManual();
Manual ShadowManual();
Manual TopManual();
Manual RunManual();
Manual ChatManual();
Manual TokenizeManual();
Manual ConvertManual();
Manual BuildManual();
Manual AdapterManual();
Manual InspectManual();
Manual ReplayManual();
Manual VerifyManual();
Manual MigrateManual();
Manual CompatManual();
Manual BenchManual();
Manual BenchLoadManual();
Manual BenchThroughputManual();
Manual BenchLatencyManual();
Manual BenchMixesManual();
Manual BenchSleepManual();
Manual CompletionManual();
Manual ManManual();

struct Command {
  const char* name;  // "run"; "bench load" is a command of its own
  const char* summary;
  int (*main)(Args);
  Manual (*manual)();
};

// All of them, in the order in which they are listed.
std::span<const Command> Commands();

}  // namespace inflight::tool
