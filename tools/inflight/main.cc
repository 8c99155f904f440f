// SPDX-License-Identifier: Apache-2.0
// inflight: one binary, a subcommand per file of this folder.
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "commands.h"
#include "completion.h"
#include "inflight/version.h"
#include "parameters_page.h"

namespace inflight::tool {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*main)(Args);
  std::vector<config::OptionInfo> (*options)();
};

constexpr Command kCommands[] = {
    {"serve", "serve models over HTTP and gRPC", ServeMain, ServeOptionInfos},
    {"run", "generate without a server: a prompt, or a file of requests", RunMain, RunOptionInfos},
    {"chat", "talk with a model in the terminal", ChatMain, ChatOptionInfos},
    {"tokenize", "text to token ids and back", TokenizeMain, TokenizeOptionInfos},
    {"convert", "Hugging Face directory to checkpoint", ConvertMain, ConvertOptionInfos},
    {"build", "checkpoint or Hugging Face directory to engine", BuildMain, BuildOptionInfos},
    {"adapter", "adapter (LoRA) of peft to the arrays that requests send", AdapterMain,
     AdapterOptionInfos},
    {"inspect", "what is in a model, checkpoint, engine or repository, and its memory plan",
     InspectMain, InspectOptionInfos},
    {"migrate", "what of a deployment of the TensorRT-LLM back-end runs as it is, and what to do",
     MigrateMain, MigrateOptionInfos},
    {"compat", "lay out the scripts and model repositories that the back-end's guides name",
     CompatMain, CompatOptionInfos},
    {"shadow", "the same requests to two servers over HTTP, and how their answers differ",
     ShadowMain, ShadowOptionInfos},
    {"bench", "measure generation beside this machine's limits", BenchMain, BenchOptionInfos},
    {"bench throughput", "output tokens a second of many requests at once, beside the limit",
     BenchThroughputMain, BenchThroughputOptionInfos},
    {"bench latency", "first token and inter-token time of one request at a time", BenchLatencyMain,
     BenchLatencyOptionInfos},
    {"bench mixes", "what decoding features cost the steps that they share with plain rows",
     BenchMixesMain, BenchMixesOptionInfos},
    {"bench load", "measure a running server over the wire", BenchLoadMain, BenchLoadOptionInfos},
};

void PrintUsage(FILE* out) {
  std::fprintf(out, "inflight %s: an LLM inference server\n\nUsage: inflight COMMAND [options]\n\n",
               kVersion);
  for (const Command& command : kCommands)
    std::fprintf(out, "  %-11s %s\n", command.name, command.summary);
  std::fprintf(
      out,
      "\n`inflight COMMAND --help` lists a command's options; `inflight completion bash` prints "
      "completion for bash;\n`inflight key` makes a key for clients of a server.\n");
}

// The page docs/configuration.md; a test keeps the file equal to it.
int PrintConfigurationPage() {
  std::printf(
      "# Configuration\n\nMade by `inflight options` from the schemas that parse them; do not "
      "edit.\n\n"
      "A flag is `--name value` or `--name=value`. With `--config FILE` the same options are read "
      "from a JSON object under\n"
      "their file keys; flags win over the file.\n");
  for (const Command& command : kCommands)
    std::printf("\n## inflight %s\n%s", command.name,
                config::ToMarkdown(command.options()).c_str());
  return 0;
}

int PrintCompletion(Args args) {
  if (args.size() != 1 || std::string_view(args[0]) != "bash") {
    std::fprintf(stderr,
                 "inflight: completion is for one shell; usage: inflight completion bash\n");
    return 1;
  }
  std::vector<CommandOptions> commands;
  for (const Command& command : kCommands) commands.push_back({command.name, command.options()});
  std::fputs(BashCompletion(commands).c_str(), stdout);
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
  if (name == "key") return KeyMain(Args(argv + 2, static_cast<size_t>(argc - 2)));
  if (name == "completion") return PrintCompletion(Args(argv + 2, static_cast<size_t>(argc - 2)));
  for (const Command& command : kCommands)
    if (name == command.name) return command.main(Args(argv + 2, static_cast<size_t>(argc - 2)));
  std::fprintf(stderr, "inflight: unknown command '%s'\n\n", argv[1]);
  PrintUsage(stderr);
  return 1;
}

}  // namespace
}  // namespace inflight::tool

int main(int argc, char** argv) { return inflight::tool::Main(argc, argv); }
