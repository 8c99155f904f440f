// SPDX-License-Identifier: Apache-2.0
// inflight: one binary, a subcommand per file of this folder.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "config/schema.h"
#include "families_table.h"
#include "inflight/version.h"
#include "names_elsewhere.h"
#include "parameters_page.h"

namespace inflight::tool {
namespace {

void PrintUsage(FILE* out) {
  std::fprintf(out, "inflight %s: an LLM inference server\n\nUsage: inflight COMMAND [options]\n\n",
               kVersion);
  for (const Command& command : Commands())
    std::fprintf(out, "  %-16s  %s\n", command.name, command.summary);
  std::fprintf(out, "\n`inflight help COMMAND` lists a command's options.\n");
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
  return Finish(Status::Ok());
}

// A link of the name that scripts start has the same arguments.
bool IsCalledTritonserver(const char* program) {
  const std::string_view path = program;
  return path.substr(path.rfind('/') + 1) == "tritonserver";
}

// Files that are opened must not get the place of standard input, output or error where the caller
// closed it: what is printed would go into them. Reads and writes are errors then.
void KeepStandardPlaces() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    const int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode) < 0) return;
  }
}

int UnknownOption(const std::string& name) {
  std::string message = "unknown option '" + name + "'";
  if (const auto nearest = config::Nearest(name, {"--help", "--version"}))
    message += "; did you mean '" + *nearest + "'?";
  return Fail(InvalidArgument(
      message + " (options of a command stand behind it; `inflight help` lists the commands)"));
}

int UnknownCommand(const std::string& name) {
  if (name.starts_with('-')) return UnknownOption(name);
  std::string message = "unknown command '" + name + "'";
  std::vector<std::string> known = {"help", "version", "options"};
  for (const Command& command : Commands()) known.emplace_back(command.name);
  if (const auto elsewhere = CommandElsewhere(name))
    message = *elsewhere;
  else if (const auto nearest = config::Nearest(name, known))
    message += "; did you mean '" + *nearest + "'?";
  return Fail(InvalidArgument(message + " (`inflight help` lists the commands)"));
}

// `words` are a command, of one word or two, and maybe --help-all.
int Help(Args words) {
  std::string help = "--help";
  std::string name;
  for (const std::string_view word : words) {
    if (word.starts_with('-'))
      help = word;
    else
      name += (name.empty() ? "" : " ") + std::string(word);
  }
  if (name.empty()) {
    PrintUsage(stdout);
    return Finish(Status::Ok());
  }
  char* const asked = help.data();
  for (const Command& command : Commands())
    if (name == command.name) return command.main(Args(&asked, 1));
  return UnknownCommand(name);
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on sizes of files is an error of who writes, too
  KeepStandardPlaces();
  if (argc > 0 && IsCalledTritonserver(argv[0]))
    return TritonserverMain(Args(argv + 1, static_cast<size_t>(argc - 1)));
  if (argc < 2) {
    PrintUsage(stderr);
    return 1;
  }
  const std::string_view name = argv[1];
  const Args rest(argv + 2, static_cast<size_t>(argc - 2));
  if (name == "--help" || name == "-h" || name == "help")
    return Help(name == "help" ? rest : Args());
  if (name == "--version" || name == "-v" || name == "-V" || name == "version") {
    std::printf("inflight %s\n", kVersion);
    return Finish(Status::Ok());
  }
  if (name == "options") return PrintConfigurationPage();
  if (name == "parameters") {  // a test keeps docs/reference/parameters.md equal to it
    std::fputs(ParametersPage().c_str(), stdout);
    return Finish(Status::Ok());
  }
  if (name == "families") {  // scripts/models_page.py makes the table of docs/models.md of it
    std::fputs(FamiliesTable().c_str(), stdout);
    return Finish(Status::Ok());
  }
  if (name == "worker") return WorkerMain(rest);
  for (const Command& command : Commands())
    if (name == command.name) return command.main(rest);
  return UnknownCommand(argv[1]);
}

}  // namespace
}  // namespace inflight::tool

int main(int argc, char** argv) {
  try {
    return inflight::tool::Main(argc, argv);
  } catch (const std::system_error&) {  // fmt's, where standard output does not take more
    if (std::ferror(stdout) == 0) throw;
    return inflight::tool::Finish(inflight::Status::Ok());
  }
}
