// SPDX-License-Identifier: Apache-2.0
// inflight compat install: lays out the scripts and model repositories of the TensorRT-LLM
// backend's guides. The work is compat/install.py's; this finds it beside the program and becomes
// it.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

const Usage kCompatUsage = {
    "inflight compat install DIR [--release 0.10]",
    "Lays out in DIR what the guides of the TensorRT-LLM backend call, under its names: scripts, "
    "clients, test tools,\nand all_models of a release as templates. Needs python3; "
    "docs/migrating.md "
    "has the guides' commands."};

struct CompatOptions {
  std::string release = "0.10";
};

config::Schema<CompatOptions> MakeCompatSchema() {
  config::Schema<CompatOptions> schema;
  schema.Section("Compat");
  schema.Add(
      "release", [](CompatOptions& o) -> auto& { return o.release; },
      "Release of the backend whose model repositories are laid out: 0.5 to 0.21, 1.0 to 1.2.");
  return schema;
}

// Of the installed program and of the one in a build directory.
constexpr char kInstallScript[] = "share/inflight/compat/install.py";

Status Become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return FailedPrecondition("compat install: cannot run " + command[0] +
                            ", which it needs: " + std::strerror(errno));
}

Status Install(const CompatOptions& options, std::span<const std::string> positionals) {
  if (positionals.size() != 2 || positionals[0] != "install")
    return UsageError(kCompatUsage, "'install' and one directory are needed");
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path script = program.parent_path().parent_path() / kInstallScript;
  if (error || !fs::exists(script))
    return NotFound("compat install: " + script.string() +
                    " is not there; install the program with cmake --install, or run the one of a "
                    "build directory");
  // -B: nothing is written beside the script.
  return Become({"python3", "-B", script.string(), "--release", options.release, "--program",
                 program.string(), "--", positionals[1]});
}

}  // namespace

int CompatMain(Args args) { return RunCommand(args, kCompatUsage, MakeCompatSchema(), Install); }

Manual CompatManual() { return {kCompatUsage, MakeCompatSchema().options()}; }

}  // namespace inflight::tool
