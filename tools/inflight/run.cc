// SPDX-License-Identifier: Apache-2.0
// inflight run: generate without a server. A prompt streams to the terminal; a file of JSON lines
// is answered in the same order.
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "model_options.h"
#include "parameters/parameters.h"
#include "progress.h"
#include "run_request.h"
#include "sampling_options.h"
#include "terminal_sink.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

const Usage kUsage = {
    "inflight run DIR --prompt TEXT | --input requests.jsonl [--output results.jsonl]",
    "Generates without a server from a Hugging Face, checkpoint or engine directory. Lines of "
    "--input are JSON objects\n"
    "with text_input or input_ids and the ensemble's parameter names (max_tokens, temperature, "
    "top_k, ...).\n"
    "A temperature above 0 draws; what a request leaves open is what the model's "
    "generation_config.json says."};

struct Options {
  ModelOptions model;
  std::string prompt;
  std::string input;
  std::string output = "-";
  SamplingOptions sampling;  // of --prompt, but for max_tokens
  bool verbose = false;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Run");
  schema.Add(
      "prompt", [](Options& o) -> auto& { return o.prompt; },
      "Text to continue; the answer streams to standard output.");
  schema.Add(
      "input", [](Options& o) -> auto& { return o.input; },
      "File of requests, a JSON object a line; - is standard input.");
  schema.Add(
      "output", [](Options& o) -> auto& { return o.output; },
      "File of results; - is standard output.");
  AddSampling(
      schema, [](Options& o) -> auto& { return o.sampling; }, "For --prompt: ",
      "Tokens to generate where a request does not say; default: the model's own, else 64.");
  schema.Add(
      "log_verbose", [](Options& o) -> auto& { return o.verbose; },
      "Log what is loaded and chosen.", config::Switch());
  schema.Section("Engine");
  AddEngineOptions(schema, [](Options& o) -> auto& { return o.model; });
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.model.executor.max_batch_size; },
      "Sequences in one step.", config::AtLeast(1));
  return schema;
}

Status RunPrompt(const OpenedModel& model, const Options& options) {
  if (model.tokenizer == nullptr)
    return FailedPrecondition(
        "--prompt: this model directory has no tokenizer; use --input with input_ids");
  Request request;
  ASSIGN_OR_RETURN(request.input_ids,
                   model.tokenizer->Encode(options.prompt, /*add_special_tokens=*/true));
  const auto defaults = parameters::ReadModelDefaultsOrWarn(model.info.tokenizer_dir);
  request.max_tokens = options.sampling.MaxTokens(defaults, parameters::kDefaultMaxTokens);
  request.streaming = true;
  request.end_ids = model.info.end_ids;
  request.sampling = options.sampling.ToParams(defaults, parameters::RandomSeed());
  if (parameters::IsDrawn(request.sampling) && !options.sampling.seed)
    std::fprintf(stderr, "seed %s, by chance\n", std::to_string(*request.sampling.seed).c_str());
  auto sink = std::make_shared<TerminalSink>(model.tokenizer);
  RETURN_IF_ERROR(model.executor->Enqueue(std::move(request), sink).status());
  Status status = sink->Wait().status;
  std::fputc('\n', stdout);
  return status;
}

json ResultLine(const Beam& answer, const Tokenizer* tokenizer, bool with_log_probs) {
  json line;
  if (tokenizer != nullptr)
    line["text_output"] = tokenizer->Decode(answer.output_ids, /*skip_special_tokens=*/true);
  line["output_ids"] = answer.output_ids;
  line["finish_reason"] = FinishReasonName(answer.finish_reason);
  if (with_log_probs) {
    line["output_log_probs"] = answer.output_log_probs;
    line["cum_log_probs"] = answer.cum_log_prob;
  }
  return line;
}

// Of several sequences or beams every value is a list, the best beam first.
json ResultLine(const std::vector<Beam>& answers, const Tokenizer* tokenizer, bool with_log_probs) {
  json lines = json::object();
  for (const Beam& answer : answers) {
    const json line = ResultLine(answer, tokenizer, with_log_probs);
    for (const auto& [key, value] : line.items()) lines[key].push_back(value);
  }
  return lines;
}

// Writes results in the order of their lines, whatever the order in which they come, and bounds how
// many are under way. A line that takes long keeps none of those behind it from being computed.
class OrderedWriter {
 public:
  OrderedWriter(std::ostream& out, size_t max_under_way)
      : out_(out), max_under_way_(max_under_way) {}

  // Waits until line `index` may be started.
  void WaitForRoom(size_t index) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return index < NumAnswered() + max_under_way_; });
  }

  void Write(size_t index, const json& line, size_t num_tokens = 0) {
    const std::lock_guard lock(mutex_);
    num_tokens_ += num_tokens;
    if (line.contains("error")) ++num_failed_;
    ready_.emplace(index, line.dump(-1, ' ', false, json::error_handler_t::replace));
    for (auto it = ready_.begin(); it != ready_.end() && it->first == next_;
         it = ready_.erase(it), ++next_)
      out_ << it->second << '\n';
    if (ready_.empty()) out_.flush();
    has_room_ = out_.good();
    wake_.notify_all();
  }

  // Returns the number of answers once there are more than `num_seen`.
  size_t WaitForAnswer(size_t num_seen) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return NumAnswered() > num_seen; });
    return NumAnswered();
  }

  size_t num_answered() const {
    const std::lock_guard lock(mutex_);
    return NumAnswered();
  }

  size_t num_failed() const {  // of the answers
    const std::lock_guard lock(mutex_);
    return num_failed_;
  }

  bool has_room() const {  // false: not all could be written, as of a disk that is full
    const std::lock_guard lock(mutex_);
    return has_room_;
  }

  size_t num_tokens() const {  // of all answers
    const std::lock_guard lock(mutex_);
    return num_tokens_;
  }

 private:
  size_t NumAnswered() const { return next_ + ready_.size(); }  // under mutex_

  std::ostream& out_;
  const size_t max_under_way_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<size_t, std::string> ready_;  // answers that wait for those before them
  size_t next_ = 0;
  size_t num_tokens_ = 0;
  size_t num_failed_ = 0;
  bool has_room_ = true;
};

class LineSink : public ResponseSink {
 public:
  LineSink(OrderedWriter& writer, size_t index, const Tokenizer* tokenizer, const RunRequest& asked)
      : writer_(writer),
        index_(index),
        tokenizer_(tokenizer),
        seed_by_chance_(asked.seed_by_chance),
        with_log_probs_(asked.request.output.return_log_probs),
        has_beams_(asked.request.sampling.beam_width > 1) {}

  void OnResponse(Response response) override {
    if (!response.status.ok()) {
      writer_.Write(index_, {{"error", response.status.message()}});
      return;
    }
    if (has_beams_) {
      answers_ = std::move(response.beams);
    } else {
      const auto index = static_cast<size_t>(response.sequence_index);
      answers_.resize(std::max(answers_.size(), index + 1));
      answers_[index] = {.output_ids = std::move(response.output_ids),
                         .output_log_probs = std::move(response.output_log_probs),
                         .cum_log_prob = response.cum_log_prob,
                         .finish_reason = response.finish_reason};
    }
    if (response.is_final) WriteAnswers();
  }

 private:
  void WriteAnswers() {
    size_t num_tokens = 0;
    for (const Beam& answer : answers_) num_tokens += answer.output_ids.size();
    const bool is_one = !has_beams_ && answers_.size() == 1;
    json line = is_one ? ResultLine(answers_[0], tokenizer_, with_log_probs_)
                       : ResultLine(answers_, tokenizer_, with_log_probs_);
    if (seed_by_chance_) line["seed"] = *seed_by_chance_;
    writer_.Write(index_, line, num_tokens);
  }

  OrderedWriter& writer_;
  const size_t index_;
  const Tokenizer* tokenizer_;
  const std::optional<uint64_t> seed_by_chance_;
  const bool with_log_probs_;
  const bool has_beams_;
  std::vector<Beam> answers_;  // of each sequence, or of each beam
};

void StartLine(const OpenedModel& model, const RunDefaults& defaults, const std::string& text,
               size_t index, OrderedWriter& writer) {
  auto asked = ParseRunRequest(text, model.tokenizer.get(), defaults);
  Status status = asked.status();
  if (asked.ok()) {
    auto sink = std::make_shared<LineSink>(writer, index, model.tokenizer.get(), *asked);
    status = model.executor->Enqueue(std::move(asked->request), std::move(sink)).status();
  }
  if (!status.ok()) writer.Write(index, {{"error", status.message()}});
}

Status RunFile(const OpenedModel& model, const Options& options) {
  std::ifstream input_file;
  if (options.input != "-") {
    input_file.open(options.input);
    if (!input_file) return NotFound("--input: cannot open '" + options.input + "'");
  }
  std::ofstream output_file;
  if (options.output != "-") {
    output_file.open(options.output);
    if (!output_file) return NotFound("--output: cannot create '" + options.output + "'");
  }
  std::istream& in = options.input == "-" ? std::cin : input_file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(std::move(line));
  if (in.bad() || (options.input == "-" && std::ferror(stdin) != 0))
    return Unavailable("--input: '" + options.input + "' cannot be read");

  RunDefaults defaults{.model = parameters::ReadModelDefaultsOrWarn(model.info.tokenizer_dir),
                       .end_ids = model.info.end_ids};
  defaults.max_tokens = options.sampling.MaxTokens(defaults.model, parameters::kDefaultMaxTokens);
  OrderedWriter writer(options.output == "-" ? std::cout : output_file,
                       2 * static_cast<size_t>(model.executor->limits().max_batch_size));
  const int64_t begin_ns = Clock::System().NowNs();
  size_t num_started = 0;
  {
    ProgressBar bar("run");
    const auto show = [&](size_t num_answered) {
      bar.Update(static_cast<double>(num_answered) / static_cast<double>(lines.size()), "requests");
    };
    for (size_t i = 0; i < lines.size() && writer.has_room(); ++i) {
      num_started = i + 1;
      writer.WaitForRoom(i);
      StartLine(model, defaults, lines[i], i, writer);
      show(writer.num_answered());
    }
    for (size_t n = 0; n < num_started; show(n)) n = writer.WaitForAnswer(n);
  }
  const double seconds = static_cast<double>(Clock::System().NowNs() - begin_ns) * 1e-9;
  logging::Info("requests answered",
                {{"requests", lines.size()},
                 {"tokens", writer.num_tokens()},
                 {"seconds", seconds},
                 {"tokens_per_s", static_cast<double>(writer.num_tokens()) / seconds}});
  if (output_file.is_open()) output_file.close();
  if (!writer.has_room() || output_file.fail())
    return DataLoss("--output: not all could be written to '" + options.output + "'");
  if (const size_t failed = writer.num_failed(); failed > 0)
    return FailedPrecondition(std::to_string(failed) + " of " + std::to_string(lines.size()) +
                              " requests failed; the lines of the output say why");
  return Status::Ok();
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  if (positionals.size() > 1)
    return UsageError(kUsage, "unexpected argument '" + positionals[1] +
                                  "'; a text to continue stands behind --prompt");
  ASSIGN_OR_RETURN(const std::string dir, OnlyPositional(kUsage, positionals, "model directory"));
  if (options.prompt.empty() && options.input.empty())
    return UsageError(kUsage, "a text by --prompt or a file by --input is needed");
  if (!options.prompt.empty() && !options.input.empty())
    return UsageError(kUsage, "--prompt and --input both ask; give one");
  logging::SetLevel(options.verbose ? logging::Level::kVerbose : logging::Level::kWarning);
  ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(dir, options.model));
  Status status = options.input.empty() ? RunPrompt(model, options) : RunFile(model, options);
  model.executor->Shutdown(/*drain_ms=*/0);
  return status;
}

}  // namespace

int RunMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual RunManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
