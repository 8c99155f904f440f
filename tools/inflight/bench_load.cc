// SPDX-License-Identifier: Apache-2.0
// inflight bench load: requests to a running server, and what its clients would see.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/status_macros.h"
#include "bench/load/load.h"
#include "bench/tensors/served_model.h"
#include "bench_load_tensors.h"
#include "command_line.h"
#include "commands.h"

namespace inflight::tool {
namespace {

using bench::LoadPrompt;
using bench::LoadProtocol;

const Usage kUsage = {
    "inflight bench load HOST[:PORT] [--model NAME] [--concurrency N | --request-rate R]",
    "Sends requests to a running server. Of LLMs it prints times to the first token, between "
    "tokens and to the end, tokens/s,\n"
    "requests/s, errors by kind, and the CPU time that this client took itself; of other models, "
    "with options and report like perf_analyzer's,\n"
    "throughput and latency of tensors at each load of a range, beside the server's statistics."};

struct Options {
  bench::LoadOptions load{.model = "ensemble"};
  std::optional<std::string> protocol, url;
  std::string input = "auto";
  std::string prompts;
  std::optional<int> num_requests;
  std::optional<std::string> concurrency;
  std::string request_rate = "0";
  int input_len = 128;
  int output_len = 64;
  int vocab_size = 1000;
  std::string json;
  TensorLoadOptions tensors;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Server");
  schema.Add(
      "protocol", [](Options& o) -> auto& { return o.protocol; },
      "HTTP (port 8000): generate-stream (of prompts, unless given), generate, or infer, also "
      "called http (of tensors, unless given); gRPC (port 8001): a stream for each prompt, calls "
      "of tensors.",
      config::OneOf({"generate-stream", "generate", "infer", "http", "grpc"}));
  schema.Alias("-i", "protocol");
  schema.Add(
      "model", [](Options& o) -> auto& { return o.load.model; }, "Name of the model.");
  schema.Alias("-m", "model");
  schema.Add(
      "url", [](Options& o) -> auto& { return o.url; }, "HOST:PORT, instead of the argument.");
  schema.Alias("-u", "url");
  schema.Section("Load");
  schema.Add(
      "num_requests", [](Options& o) -> auto& { return o.num_requests; },
      "Requests that are counted: 100 of prompts unless given; of tensors, windows of time unless "
      "given.",
      config::AtLeast(1));
  schema.Alias("request_count", "num_requests");
  schema.Add(
      "concurrency", [](Options& o) -> auto& { return o.concurrency; },
      "Requests under way, up to 65536, 1 unless given; of prompts with --request-rate at most so "
      "many (4096 unless given). Of tensors also start:end:step, a load each.");
  schema.Alias("concurrency_range", "concurrency");
  schema.Add(
      "request_rate", [](Options& o) -> auto& { return o.request_rate; },
      "Requests a second, of prompts with exponential gaps; 0 sends when an answer came. Of "
      "tensors also start:end:step.");
  schema.Alias("request_rate_range", "request_rate");
  schema.Add(
      "num_warmup", [](Options& o) -> auto& { return o.load.num_warmup; },
      "Requests before the measurement (of tensors, before each load), not counted.",
      config::AtLeast(0));
  schema.Alias("warmup_request_count", "num_warmup");
  schema.Add(
      "timeout_ms", [](Options& o) -> auto& { return o.load.timeout_ms; },
      "A request that lasts longer is given up and counted as an error.", config::AtLeast(1));
  schema.Section("Prompts");
  schema.Add(
      "input", [](Options& o) -> auto& { return o.input; },
      "Send prompts, as text or token ids, or tensors. auto: tensors where an option of tensors is "
      "given; else what the model's inputs ask for.",
      config::OneOf({"auto", "text", "ids", "tensors"}));
  schema.Add(
      "prompts", [](Options& o) -> auto& { return o.prompts; },
      "File with a prompt a line, text or a JSON object with text_input or input_ids and "
      "max_tokens; read round and round.");
  schema.Add(
      "input_len", [](Options& o) -> auto& { return o.input_len; },
      "Without --prompts: token ids, or words, of each prompt.", config::AtLeast(1));
  schema.Add(
      "output_len", [](Options& o) -> auto& { return o.output_len; },
      "Tokens asked for where a prompt does not say.", config::AtLeast(1));
  schema.Add(
      "ignore_end", [](Options& o) -> auto& { return o.load.ignore_end; },
      "Ask for all tokens, past the model's end token.");
  schema.Add(
      "vocab_size", [](Options& o) -> auto& { return o.vocab_size; },
      "Random token ids are below this.", config::AtLeast(2));
  schema.Add(
      "seed", [](Options& o) -> auto& { return o.load.seed; }, "Of prompts and arrivals.",
      config::AtLeast(0));
  AddTensorLoad(schema);
  schema.Section("Report");
  schema.Add(
      "json", [](Options& o) -> auto& { return o.json; },
      "File for the report as JSON; - is standard output, instead of the table.");
  return schema;
}

// Port 8000, or 8001 of gRPC, unless given.
Status ParseAddress(std::string text, bench::LoadOptions& load) {
  if (text.starts_with("http://")) text.erase(0, 7);
  while (text.ends_with('/')) text.pop_back();
  const size_t colon = text.rfind(':');
  load.host = text.substr(0, colon);
  load.port = load.protocol == LoadProtocol::kGrpcStream ? 8001 : 8000;
  if (colon == std::string::npos) return Status::Ok();
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data() + colon + 1, end, load.port);
  if (error != std::errc() || next != end || load.port < 1 || load.port > 65535)
    return InvalidArgument("address: got '" + text + "', needs HOST or HOST:PORT");
  return Status::Ok();
}

Result<LoadPrompt> ParsePrompt(const std::string& line, const Options& options, bool wants_ids) {
  LoadPrompt prompt{.text = line, .ids = {}, .output_len = options.output_len};
  if (line.starts_with('{')) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return InvalidArgument("not a JSON object");
    prompt.text.clear();
    for (const auto& [key, value] : json.items()) {
      if (key == "text_input" && value.is_string())
        prompt.text = value.get<std::string>();
      else if (key == "max_tokens" && value.is_number_integer() && value.get<int64_t>() > 0)
        prompt.output_len = value.get<int>();
      else if (key == "input_ids" && value.is_array() &&
               std::all_of(value.begin(), value.end(),
                           [](const auto& id) { return id.is_number_integer(); }))
        prompt.ids = value.get<std::vector<int32_t>>();
      else
        return InvalidArgument("'" + key +
                               "': known are text_input (text), input_ids (integers) and "
                               "max_tokens (above 0)");
    }
  }
  if (wants_ids == prompt.ids.empty())
    return InvalidArgument(wants_ids ? "needs input_ids for this model"
                                     : "needs text_input for this model");
  return prompt;
}

Result<std::vector<LoadPrompt>> ReadPrompts(const Options& options, bool wants_ids) {
  std::ifstream file(options.prompts);
  if (!file) return NotFound("--prompts: cannot open '" + options.prompts + "'");
  std::vector<LoadPrompt> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto prompt = ParsePrompt(line, options, wants_ids);
    if (!prompt.ok())
      return prompt.status().WithPrefix(options.prompts + " line " + std::to_string(number));
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) return InvalidArgument("--prompts: '" + options.prompts + "' has no line");
  return prompts;
}

// Different from each other, so that none is served from another's KV cache.
LoadPrompt RandomPrompt(const Options& options, bool wants_ids, std::mt19937_64& random) {
  static constexpr const char* kWords[] = {"the",   "river",  "house", "green", "walked", "and",
                                           "seven", "under",  "light", "stone", "a",      "spoke",
                                           "early", "garden", "to",    "winter"};
  LoadPrompt prompt{.text = {}, .ids = {}, .output_len = options.output_len};
  for (int i = 0; i < options.input_len; ++i) {
    if (wants_ids)
      prompt.ids.push_back(
          static_cast<int32_t>(random() % static_cast<uint64_t>(options.vocab_size)));
    else
      prompt.text += (i > 0 ? " " : "") + std::string(kWords[random() % std::size(kWords)]);
  }
  return prompt;
}

Result<std::vector<LoadPrompt>> MakePrompts(const Options& options) {
  const bool wants_ids = options.input == "ids";
  const auto count = static_cast<size_t>(options.num_requests.value_or(100)) +
                     static_cast<size_t>(options.load.num_warmup);
  std::vector<LoadPrompt> prompts;
  if (!options.prompts.empty()) {
    ASSIGN_OR_RETURN(const std::vector<LoadPrompt> lines, ReadPrompts(options, wants_ids));
    while (prompts.size() < count) prompts.push_back(lines[prompts.size() % lines.size()]);
    return prompts;
  }
  std::mt19937_64 random(options.load.seed);
  while (prompts.size() < count) prompts.push_back(RandomPrompt(options, wants_ids, random));
  return prompts;
}

// text, ids or tensors where the option says auto.
Result<std::string> InputOf(const Options& options, bool is_grpc) {
  if (options.input != "auto") return options.input;
  const bool has_range =
      (options.concurrency.value_or("") + options.request_rate).find(':') != std::string::npos;
  if (options.tensors.Given() || has_range) return std::string("tensors");
  const std::string& name = options.load.model;
  if (name == "tensorrt_llm") return std::string("ids");
  if (name == "ensemble" || name == "tensorrt_llm_bls") return std::string("text");
  auto calls = bench::CreateHttpCalls(options.load.host, options.load.port);
  if (is_grpc) {
    ASSIGN_OR_RETURN(calls, bench::CreateGrpcCalls(options.load.host, options.load.port));
  }
  ASSIGN_OR_RETURN(const bench::ServedModel model, bench::DescribeModel(*calls, name, ""));
  for (const bench::ServedTensor& input : model.inputs) {
    if (input.name == "text_input") return std::string("text");
    if (input.name == "input_ids") return std::string("ids");
  }
  return std::string("tensors");
}

// An option of prompts that is not at its default, which tensors would ignore.
Status NoPromptOptions(const Options& options) {
  const Options defaults;
  const char* flag = !options.prompts.empty()                              ? "--prompts"
                     : options.input_len != defaults.input_len             ? "--input-len"
                     : options.output_len != defaults.output_len           ? "--output-len"
                     : options.vocab_size != defaults.vocab_size           ? "--vocab-size"
                     : options.load.ignore_end != defaults.load.ignore_end ? "--ignore-end"
                                                                           : nullptr;
  if (flag == nullptr) return Status::Ok();
  return InvalidArgument(std::string(flag) + ": is of prompts, and tensors are sent; --input " +
                         "text or ids sends prompts");
}

// Concurrency and rate of prompts: one number each.
Status SetPromptLoad(const Options& options, bench::LoadOptions& load) {
  const std::string given = options.concurrency.value_or("1");
  ASSIGN_OR_RETURN(const std::vector<double> concurrency, ParseRange("--concurrency", given, true));
  if (concurrency.size() != 1)
    return InvalidArgument("--concurrency: got '" + given +
                           "', prompts take one number; ranges are of --input tensors");
  load.concurrency = static_cast<int>(concurrency[0]);
  if (options.request_rate == "0") return Status::Ok();
  ASSIGN_OR_RETURN(const std::vector<double> rate,
                   ParseRange("--request-rate", options.request_rate, false));
  if (rate.size() != 1)
    return InvalidArgument("--request-rate: got '" + options.request_rate +
                           "', prompts take one number; ranges are of --input tensors");
  load.request_rate = rate[0];
  if (!options.concurrency) load.concurrency = 4096;
  return Status::Ok();
}

Status Run(Options& options, std::span<const std::string> positionals) {
  if (!options.url || !positionals.empty()) {
    ASSIGN_OR_RETURN(options.url, OnlyPositional(kUsage, positionals, "server"));
  }
  const bool is_grpc = options.protocol == "grpc";
  options.load.protocol = is_grpc ? LoadProtocol::kGrpcStream : LoadProtocol::kGenerateStream;
  RETURN_IF_ERROR(ParseAddress(*options.url, options.load));
  ASSIGN_OR_RETURN(options.input, InputOf(options, is_grpc));
  const bool sends_tensors = options.input == "tensors";
  if (options.protocol == "infer" || options.protocol == "http" ||
      (sends_tensors && !options.protocol))
    options.load.protocol = LoadProtocol::kInfer;
  else if (options.protocol == "generate")
    options.load.protocol = LoadProtocol::kGenerate;
  if (sends_tensors) {
    RETURN_IF_ERROR(NoPromptOptions(options));
    return RunTensorLoad({.load = options.load,
                          .concurrency = options.concurrency.value_or("1"),
                          .request_rate = options.request_rate,
                          .num_requests = options.num_requests,
                          .json = options.json},
                         options.tensors);
  }
  if (const auto flag = options.tensors.Given())
    return InvalidArgument(*flag + ": is of tensors, and --input " + options.input +
                           " sends prompts");
  RETURN_IF_ERROR(SetPromptLoad(options, options.load));
  ASSIGN_OR_RETURN(const std::vector<LoadPrompt> prompts, MakePrompts(options));
  ASSIGN_OR_RETURN(const bench::LoadResult result, bench::RunLoad(options.load, prompts));
  if (options.json != "-") std::fputs(bench::LoadReportText(options.load, result).c_str(), stdout);
  const std::string json = bench::LoadReportJson(options.load, result);
  if (options.json == "-")
    std::fputs(json.c_str(), stdout);
  else if (!options.json.empty())
    RETURN_IF_ERROR(WriteFile(options.json, json));
  for (const bench::RequestOutcome& outcome : result.outcomes)
    if (outcome.error.empty()) return Status::Ok();
  return Unavailable("no request was answered: " + result.outcomes.front().error);
}

}  // namespace

int BenchLoadMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual BenchLoadManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
