// SPDX-License-Identifier: Apache-2.0
#include "bench_load_tensors.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "base/file.h"
#include "base/status_macros.h"
#include "bench/tensors/infer_requests.h"
#include "bench/tensors/measure.h"
#include "bench/tensors/measure_report.h"
#include "bench/tensors/shared_tensors.h"
#include "bench/tensors/tensor_data.h"

namespace inflight::tool {
namespace {

using bench::LoadProtocol;

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

template <typename T>
bool ParseNumber(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && next == end;
}

Result<std::pair<std::string, std::vector<int64_t>>> ParseShape(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::vector<int64_t> dims;
  bool is_right = colon != std::string::npos && colon > 0;
  if (is_right) {
    for (const std::string& part : Split(text.substr(colon + 1), ',')) {
      int64_t dim = 0;
      is_right = is_right && ParseNumber(part, dim) && dim > 0;
      dims.push_back(dim);
    }
  }
  if (!is_right || dims.empty())
    return InvalidArgument("--shape: got '" + text + "', needs NAME:d,d with d above 0");
  return std::pair(text.substr(0, colon), dims);
}

Result<bench::DataOptions> DataOf(const TensorLoad& common, const TensorLoadOptions& o) {
  bench::DataOptions data{.source = o.input_data.value_or("random"),
                          .shapes = {},
                          .batch_size = o.batch_size.value_or(1),
                          .string_length = o.string_length.value_or(128),
                          .string_data = o.string_data,
                          .seed = common.load.seed};
  for (const std::string& text : o.shapes) {
    ASSIGN_OR_RETURN(auto shape, ParseShape(text));
    data.shapes.insert_or_assign(std::move(shape.first), std::move(shape.second));
  }
  return data;
}

Result<bench::MeasureOptions> MeasurementOf(const TensorLoad& common, const TensorLoadOptions& o) {
  bench::MeasureOptions m;
  m.is_rate = common.request_rate != "0";
  if (m.is_rate) {
    ASSIGN_OR_RETURN(m.levels, ParseRange("--request-rate", common.request_rate, false));
    if (common.concurrency != "1")
      return InvalidArgument(fmt::format("--concurrency: got {} beside --request-rate {}; give one",
                                         common.concurrency, common.request_rate));
  } else {
    ASSIGN_OR_RETURN(m.levels, ParseRange("--concurrency", common.concurrency, true));
    if (o.request_distribution)
      return InvalidArgument("--request-distribution needs --request-rate");
  }
  m.is_poisson = o.request_distribution == "poisson";
  m.seed = common.load.seed;
  m.num_warmup = common.load.num_warmup;
  m.num_requests = common.num_requests.value_or(0);
  m.interval_ms = o.measurement_interval_ms.value_or(5000);
  if (o.measurement_mode == "count_windows")
    m.window_requests = o.measurement_request_count.value_or(50);
  else if (o.measurement_request_count)
    return InvalidArgument("--measurement-request-count needs --measurement-mode count_windows");
  m.stability = o.stability_percentage.value_or(10) / 100;
  m.max_windows = o.max_trials.value_or(10);
  m.percentile = o.percentile;
  m.latency_limit_us = o.latency_threshold_ms.value_or(0) * 1e3;
  m.batch_size = o.batch_size.value_or(1);
  return m;
}

Result<bench::SequenceOptions> SequencesOf(const TensorLoadOptions& o, double num_at_once) {
  bench::SequenceOptions sequences{.length = o.sequence_length.value_or(20),
                                   .variation = o.sequence_length_variation.value_or(20) / 100};
  if (o.sequence_id_range) {
    const std::vector<std::string> ends = Split(*o.sequence_id_range, ':');
    const bool is_right = (ends.size() == 1 || ends.size() == 2) &&
                          ParseNumber(ends[0], sequences.first_id) && sequences.first_id > 0 &&
                          (ends.size() == 1 || ParseNumber(ends[1], sequences.last_id)) &&
                          sequences.first_id <= sequences.last_id;
    if (!is_right)
      return InvalidArgument("--sequence-id-range: got '" + *o.sequence_id_range +
                             "', needs first or first:last, integers from 1");
  }
  if (static_cast<double>(sequences.last_id - sequences.first_id) + 1 < num_at_once)
    return InvalidArgument(fmt::format("--sequence-id-range: got {} ids, {:g} are in use at once",
                                       sequences.last_id - sequences.first_id + 1, num_at_once));
  return sequences;
}

const char* SequenceFlag(const TensorLoadOptions& o) {
  return o.sequence_length             ? "--sequence-length"
         : o.sequence_length_variation ? "--sequence-length-variation"
         : o.sequence_id_range         ? "--sequence-id-range"
         : o.num_of_sequences          ? "--num-of-sequences"
                                       : nullptr;
}

Status CheckKind(const bench::ServedModel& model, bool is_grpc, bool is_streaming) {
  if (model.is_decoupled && !is_streaming)
    return InvalidArgument(
        fmt::format("model '{}' is decoupled; use --protocol grpc --streaming", model.name));
  if (is_streaming && !is_grpc)
    return InvalidArgument("--streaming: streams of tensors need --protocol grpc");
  return Status::Ok();
}

}  // namespace

std::optional<std::string> TensorLoadOptions::Given() const {
  if (input_data) return "--input-data";
  if (!shapes.empty()) return "--shape";
  if (batch_size) return "--batch-size";
  if (string_length) return "--string-length";
  if (string_data) return "--string-data";
  if (model_version) return "--model-version";
  if (streaming) return "--streaming";
  if (shared_memory) return "--shared-memory";
  if (output_shared_memory_size) return "--output-shared-memory-size";
  if (measurement_interval_ms) return "--measurement-interval";
  if (measurement_mode) return "--measurement-mode";
  if (measurement_request_count) return "--measurement-request-count";
  if (stability_percentage) return "--stability-percentage";
  if (max_trials) return "--max-trials";
  if (percentile) return "--percentile";
  if (latency_threshold_ms) return "--latency-threshold";
  if (request_distribution) return "--request-distribution";
  if (csv) return "--latency-report-file";
  if (const char* flag = SequenceFlag(*this)) return flag;
  return std::nullopt;
}

Result<std::vector<double>> ParseRange(const std::string& flag, const std::string& text,
                                       bool is_integer) {
  std::vector<double> numbers;
  bool is_right = true;
  for (const std::string& part : Split(text, ':')) {
    double number = 0;
    is_right = is_right && ParseNumber(part, number) && number > 0 && number <= 1e6 &&
               (!is_integer || (number == std::floor(number) && number <= 65536));
    numbers.push_back(number);
  }
  is_right = is_right && !numbers.empty() && numbers.size() <= 3 && !text.ends_with(':') &&
             (numbers.size() < 2 || numbers[0] <= numbers[1]);
  if (!is_right)
    return InvalidArgument(fmt::format(
        "{}: got '{}', needs N, start:end or start:end:step with {} up to {}", flag, text,
        is_integer ? "integers from 1" : "numbers above 0", is_integer ? 65536 : 1000000));
  const double end = numbers.size() > 1 ? numbers[1] : numbers[0];
  const double step = numbers.size() > 2 ? numbers[2] : 1;
  if ((end - numbers[0]) / step > 10000)
    return InvalidArgument(fmt::format("{}: '{}' has more than 10000 loads", flag, text));
  std::vector<double> levels;
  for (int i = 0; numbers[0] + i * step <= end + 1e-9; ++i) levels.push_back(numbers[0] + i * step);
  return levels;
}

Status RunTensorLoad(const TensorLoad& common, const TensorLoadOptions& options) {
  const bench::LoadOptions& load = common.load;
  const bool is_grpc = load.protocol == LoadProtocol::kGrpcStream;
  const bool is_streaming = options.streaming.value_or(false);
  if (load.protocol != LoadProtocol::kInfer && !is_grpc)
    return InvalidArgument(
        "--protocol: the generate endpoints take prompts; tensors need http or grpc");
  ASSIGN_OR_RETURN(bench::MeasureOptions measurement, MeasurementOf(common, options));
  ASSIGN_OR_RETURN(const bench::DataOptions data, DataOf(common, options));

  std::unique_ptr<bench::ServerCalls> calls;
  if (is_grpc) {
    ASSIGN_OR_RETURN(calls, bench::CreateGrpcCalls(load.host, load.port));
  } else {
    calls = bench::CreateHttpCalls(load.host, load.port);
  }
  ASSIGN_OR_RETURN(const bench::ServedModel model,
                   bench::DescribeModel(*calls, load.model, options.model_version.value_or("")));
  RETURN_IF_ERROR(CheckKind(model, is_grpc, is_streaming));
  if (model.has_sequences) {
    if (measurement.batch_size != 1)
      return InvalidArgument(fmt::format(
          "--batch-size: got {}, requests of sequences have one item", measurement.batch_size));
    if (measurement.is_rate) measurement.max_under_way = options.num_of_sequences.value_or(4);
    ASSIGN_OR_RETURN(measurement.sequences,
                     SequencesOf(options, measurement.is_rate ? measurement.max_under_way
                                                              : measurement.levels.back()));
  } else if (const char* flag = SequenceFlag(options)) {
    return InvalidArgument(
        fmt::format("{}: model '{}' has no sequence_batching", flag, model.name));
  }
  ASSIGN_OR_RETURN(const std::vector<bench::Payload> payloads, bench::MakePayloads(model, data));
  std::unique_ptr<bench::SharedTensors> shared;
  if (options.shared_memory == "system") {
    ASSIGN_OR_RETURN(
        shared, bench::SharedTensors::Create(*calls, model, payloads,
                                             options.output_shared_memory_size.value_or(102400)));
  }
  const bench::Placement* placement = shared == nullptr ? nullptr : &shared->placement();
  std::unique_ptr<bench::LoadTransport> transport;
  if (is_grpc) {
    ASSIGN_OR_RETURN(
        transport, bench::CreateGrpcInferTransport(load, model, payloads, placement, is_streaming));
  } else if (model.has_sequences) {
    transport =
        bench::CreateHttpTransport(load, [&](size_t index, const bench::SequenceStep& step) {
          return bench::HttpInferRequest(load, model, payloads, placement, index % payloads.size(),
                                         step);
        });
  } else {
    std::vector<std::string> requests;
    for (size_t i = 0; i < payloads.size(); ++i)
      requests.push_back(bench::HttpInferRequest(load, model, payloads, placement, i));
    transport = bench::CreateHttpTransport(load, std::move(requests));
  }

  const bool prints_table = common.json != "-";
  const bench::ReportOptions report = {.is_grpc = is_grpc, .is_streaming = is_streaming};
  if (prints_table) std::fputs(bench::SettingsText(measurement).c_str(), stdout);
  std::vector<bench::LevelResult> results;
  Status measured =
      bench::Measure(measurement, model, *calls, *transport, [&](const bench::LevelResult& result) {
        results.push_back(result);
        if (prints_table)
          std::fputs(bench::LevelText(measurement, report, model, result).c_str(), stdout);
        std::fflush(stdout);
      });
  if (prints_table) std::fputs(bench::SummaryText(measurement, results).c_str(), stdout);
  const std::string json = bench::ResultsJson(measurement, model, results);
  if (common.json == "-")
    std::fputs(json.c_str(), stdout);
  else if (!common.json.empty())
    RETURN_IF_ERROR(WriteFile(common.json, json));
  if (options.csv)
    RETURN_IF_ERROR(WriteFile(*options.csv, bench::ResultsCsv(measurement, model, results)));
  return measured;
}

}  // namespace inflight::tool
