// SPDX-License-Identifier: Apache-2.0
// inflight: one binary, a subcommand per file of this folder.
#include <csignal>
#include <cstdio>
#include <string_view>
#include <vector>

#include "commands.h"
#include "config/schema.h"
#include "inflight/version.h"
#include "parameters_page.h"

namespace inflight::tool {
namespace {

void PrintUsage(FILE* out) {
  std::fprintf(out, "inflight %s: an LLM inference server\n\nUsage: inflight COMMAND [options]\n\n",
               kVersion);
  for (const Command& command : Commands())
    std::fprintf(out, "  %-16s  %s\n", command.name, command.summary);
  std::fprintf(out, "\n`inflight COMMAND --help` lists a command's options.\n");
}

// The page docs/configuration.md; a test keeps the file equal to it.
int PrintConfigurationPage() {
  std::printf(
      "# Configuration\n\nMade by `inflight options` from the schemas that parse them; do not "
      "edit.\n\n"
      "A flag is `--name value` or `--name=value`; a boolean one may also stand alone, or as "
      "`--no-name`. With `--config FILE`\n"
      "the same options are read from a JSON object under their file keys; flags win over the "
      "file.\n");
  for (const Command& command : Commands()) {
    const std::vector<config::OptionInfo> options = command.manual().options;
    if (!options.empty())
      std::printf("\n## inflight %s\n%s", command.name, config::ToMarkdown(options).c_str());
  }
  return 0;
}

// A link of the name that scripts start has the same arguments.
bool IsCalledTritonserver(const char* program) {
  const std::string_view path = program;
  return path.substr(path.rfind('/') + 1) == "tritonserver";
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (argc > 0 && IsCalledTritonserver(argv[0]))
    return TritonserverMain(Args(argv + 1, static_cast<size_t>(argc - 1)));
  if (argc < 2) {
    PrintUsage(stderr);
    return 1;
  }
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(stdout);
    return 0;
  }
  if (name == "--version" || name == "version") {
    std::printf("inflight %s\n", kVersion);
    return 0;
  }
  if (name == "options") return PrintConfigurationPage();
  if (name == "parameters") {  // a test keeps docs/reference/parameters.md equal to it
    std::fputs(ParametersPage().c_str(), stdout);
    return 0;
  }
  if (name == "worker") return WorkerMain(Args(argv + 2, static_cast<size_t>(argc - 2)));
  for (const Command& command : Commands())
    if (name == command.name) return command.main(Args(argv + 2, static_cast<size_t>(argc - 2)));
  std::fprintf(stderr, "inflight: unknown command '%s'\n\n", argv[1]);
  PrintUsage(stderr);
  return 1;
}

}  // namespace
}  // namespace inflight::tool

int main(int argc, char** argv) { return inflight::tool::Main(argc, argv); }
