// SPDX-License-Identifier: Apache-2.0
// inflight replay: repeats what `inflight serve --record` wrote, and compares.
#include "flight_recorder/replay.h"

#include <fmt/format.h>

#include <string>

#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "flight_recorder/journal.h"
#include "loader/loader.h"
#include "model_directory.h"
#include "model_options.h"
#include "replay_print.h"

namespace inflight::tool {
namespace {

using flight_recorder::Journal;
using flight_recorder::ReplayReport;

const Usage kUsage = {
    "inflight replay FILE [--model DIR]",
    "Repeats what `inflight serve --record FILE --record-prompts` wrote: the same requests and "
    "cancels at the same steps, on one thread.\nPlans and outputs are compared with the recorded "
    "ones; the first difference is told with its step and request."};

struct Options {
  std::string model;
  std::string device;
  std::optional<int> num_threads;
  std::optional<int64_t> until_step;
  std::optional<int64_t> alone;
  bool verbose = false;
  bool print = false;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Replay");
  schema.Add(
      "model", [](Options& o) -> auto& { return o.model; },
      "The model's directory, in place of the one that was recorded.");
  schema.Add(
      "device", [](Options& o) -> auto& { return o.device; },
      "Where it runs, in place of the device that was recorded: cpu, cuda or cuda:N.");
  schema.Add(
      "threads", [](Options& o) -> auto& { return o.num_threads; },
      "CPU threads; default: the usable cores.", config::Range(1, 1024));
  schema.Add(
      "until_step", [](Options& o) -> auto& { return o.until_step; }, "End behind this step.",
      config::AtLeast(1));
  schema.Add(
      "alone", [](Options& o) -> auto& { return o.alone; },
      "Repeat the request of this number alone: its outputs are compared, of whatever batch they "
      "come from.",
      config::AtLeast(1));
  schema.Add(
      "verbose", [](Options& o) -> auto& { return o.verbose; },
      "Print the plan of each step as a line of JSON, before it runs.", config::Switch());
  schema.Add(
      "print", [](Options& o) -> auto& { return o.print; },
      "Print the whole journal as lines of JSON, and repeat nothing.", config::Switch());
  return schema;
}

std::string Text(const ReplayReport& report) {
  std::string text;
  if (report.num_skipped > 0)
    text += fmt::format(
        "the journal's beginning is gone: {} turns are left out, until no request was left; plans "
        "are not compared\n",
        report.num_skipped);
  text += fmt::format("{} requests, {} cancels, {} pauses, {} steps; {} ends compared\n",
                      report.num_requests, report.num_cancels, report.num_pauses, report.num_steps,
                      report.num_ends);
  if (!report.stopped.empty()) text += fmt::format("the replay ends {}\n", report.stopped);
  if (report.num_unfinished > 0)
    text += fmt::format("{} requests had not ended\n", report.num_unfinished);
  return text + fmt::format("digest {:016x}\n", report.digest);
}

Status Repeat(Journal& journal, const Options& options) {
  const flight_recorder::Header& header = journal.header();
  ASSIGN_OR_RETURN(const std::filesystem::path model,
                   ModelDirectory(options.model.empty() ? header.model : options.model));
  OpenOptions open = header.open;
  open.device = options.device.empty() ? header.device : options.device;
  open.num_threads = options.num_threads.value_or(0);
  open.executor.deterministic = true;
  ASSIGN_OR_RETURN(const loader::LoadedBackend loaded, loader::LoadBackend(model, open));
  flight_recorder::ReplayOptions replay;
  if (options.until_step) replay.until_step = static_cast<uint64_t>(*options.until_step);
  if (options.alone) replay.alone = static_cast<RequestId>(*options.alone);
  if (options.verbose)
    replay.on_turn = [](const flight_recorder::TurnRecord& turn) {
      if (turn.plan.step != 0) fmt::print("{}\n", PlanLine(turn));
    };
  ASSIGN_OR_RETURN(const ReplayReport report,
                   flight_recorder::Replay(*loaded.backend, loaded.options, journal, replay));
  fmt::print("{}", Text(report));
  if (journal.num_torn_bytes() > 0)
    fmt::print("the last {} bytes of the journal are no whole record\n", journal.num_torn_bytes());
  if (!report.difference.empty()) return DataLoss("the replay differs: " + report.difference);
  fmt::print("equal\n");
  return Status::Ok();
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string file, OnlyPositional(kUsage, positionals, "journal"));
  ASSIGN_OR_RETURN(Journal journal, Journal::Open(file));
  return options.print ? PrintJournal(journal) : Repeat(journal, options);
}

}  // namespace

int ReplayMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual ReplayManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
