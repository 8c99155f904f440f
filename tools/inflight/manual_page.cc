// SPDX-License-Identifier: Apache-2.0
// inflight man: manual pages in the macros of man(7), from the schemas that parse the options.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/status_macros.h"
#include "commands.h"
#include "inflight/version.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

struct ManOptions {
  fs::path output_dir;
};

const Usage kManUsage = {
    "inflight man [COMMAND] | --output-dir DIR",
    "Prints the manual page of a command, or of inflight, for 'man -l -'. With --output-dir all "
    "are written, as files that man\nfinds in a folder man1 of its path."};

config::Schema<ManOptions> MakeManSchema() {
  config::Schema<ManOptions> schema;
  schema.Section("Man");
  schema.Add(
      "output_dir", [](ManOptions& o) -> auto& { return o.output_dir; },
      "Folder, made where it is not there, to write inflight.1 and a page for each command to.");
  return schema;
}

// Text as a formatter shows it unchanged: no requests at the beginning of a line, a hyphen that can
// be searched for; a new line is a blank.
std::string Plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\n':
        out += ' ';
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Line(std::string_view text) {
  const bool is_request = text.starts_with('.') || text.starts_with('\'');
  return (is_request ? "\\&" : "") + Plain(text) + '\n';
}

std::string PageName(std::string_view command) {
  std::string name = command.empty() ? "inflight" : "inflight-" + std::string(command);
  for (char& c : name)
    if (c == ' ') c = '-';
  return name;
}

std::string Head(std::string_view command, std::string_view summary, std::string_view synopsis) {
  std::string upper = PageName(command);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return fmt::format(
      ".TH {} 1 \"\" \"inflight {}\" \"Inflight\"\n"
      ".SH NAME\n{} \\- {}.SH SYNOPSIS\n{}.SH DESCRIPTION\n",
      Plain(upper), kVersion, Plain(PageName(command)), Line(summary), Line(synopsis));
}

std::string OptionsOf(const std::vector<config::OptionInfo>& options) {
  std::string out = ".SH OPTIONS\n";
  std::string section;
  for (const config::OptionInfo& info : options) {
    if (!info.is_shown()) continue;
    if (info.section != section) {
      section = info.section;
      out += ".SS " + Line(section);
    }
    const std::string details = config::Details(info);
    out +=
        fmt::format(".TP\n\\fB{}\\fR{}\n{}", Plain(info.flag()),
                    info.constraint.is_switch ? std::string()
                                              : fmt::format(" \\fI{}\\fR", config::ValueWord(info)),
                    Line(info.help + (details.empty() ? "" : " (" + details + ")")));
  }
  if (!section.empty()) out += ".SS General\n";
  out +=
      ".TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nReads options from the JSON object in a file, with "
      "_ "
      "for \\- in their names; flags win over the file.\n"
      ".TP\n\\fB\\-\\-help\\fR\nPrints the usage and the options.\n";
  return out;
}

std::string CommandPage(const Command& command) {
  const Manual manual = command.manual();
  return Head(command.name, command.summary, manual.usage.line) + Line(manual.usage.summary) +
         OptionsOf(manual.options) + ".SH EXIT STATUS\n" + Line(manual.exit_status) +
         ".SH SEE ALSO\n.BR inflight (1)\n";
}

std::string ProgramPage() {
  std::string page =
      Head("", "an LLM inference server", "inflight COMMAND [options]") +
      "Serves language models over the KServe v2 protocol, HTTP and gRPC, on CPUs and NVIDIA "
      "GPUs, and does what belongs to that: each command has a page of its own.\n.SH COMMANDS\n";
  for (const Command& command : Commands())
    page +=
        fmt::format(".TP\n.BR {} (1)\n{}", Plain(PageName(command.name)), Line(command.summary));
  return page;
}

Status WritePage(const fs::path& dir, std::string_view command, const std::string& page) {
  const fs::path path = dir / (PageName(command) + ".1");
  std::ofstream out(path, std::ios::trunc);
  out << page;
  out.close();
  return out ? Status::Ok() : Unavailable("--output-dir: " + path.string() + " cannot be written");
}

Status WriteAll(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return Unavailable("--output-dir: " + dir.string() + ": " + error.message());
  RETURN_IF_ERROR(WritePage(dir, "", ProgramPage()));
  for (const Command& command : Commands())
    RETURN_IF_ERROR(WritePage(dir, command.name, CommandPage(command)));
  return Status::Ok();
}

Status PrintPages(ManOptions& options, std::span<const std::string> positionals) {
  std::string name;  // "bench load" may be one argument or two
  for (const std::string& word : positionals) name += (name.empty() ? "" : " ") + word;
  if (!options.output_dir.empty()) {
    if (!name.empty()) return UsageError(kManUsage, "--output-dir writes all pages");
    return WriteAll(options.output_dir);
  }
  if (name.empty()) {
    std::fputs(ProgramPage().c_str(), stdout);
    return Status::Ok();
  }
  std::vector<std::string> known;
  for (const Command& command : Commands()) {
    known.emplace_back(command.name);
    if (name != command.name) continue;
    std::fputs(CommandPage(command).c_str(), stdout);
    return Status::Ok();
  }
  const auto nearest = config::Nearest(name, known);
  return InvalidArgument("unknown command '" + name + "'" +
                         (nearest ? "; did you mean '" + *nearest + "'?" : ""));
}

}  // namespace

int ManMain(Args args) { return RunCommand(args, kManUsage, MakeManSchema(), PrintPages); }

Manual ManManual() { return {kManUsage, MakeManSchema().options()}; }

}  // namespace inflight::tool
