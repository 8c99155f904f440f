// SPDX-License-Identifier: Apache-2.0
// The subcommands of `inflight`, a file each. Each takes the arguments after its name and returns
// the exit status.
#pragma once

#include <span>
#include <string>

namespace inflight::tool {

using Args = std::span<char* const>;

int ServeMain(Args args);
int RunMain(Args args);
int TokenizeMain(Args args);
int ConvertMain(Args args);
int BuildMain(Args args);
int InspectMain(Args args);
int BenchMain(Args args);

// Options of each command as docs/configuration.md shows them.
std::string ServeOptionsMarkdown();
std::string RunOptionsMarkdown();
std::string TokenizeOptionsMarkdown();
std::string ConvertOptionsMarkdown();
std::string BuildOptionsMarkdown();
std::string InspectOptionsMarkdown();
std::string BenchOptionsMarkdown();

}  // namespace inflight::tool
