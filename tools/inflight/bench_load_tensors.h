// SPDX-License-Identifier: Apache-2.0
// The part of `inflight bench load` that sends tensors to any model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/load/load.h"
#include "config/schema.h"

namespace inflight::tool {

// Absent: not given.
struct TensorLoadOptions {
  std::optional<std::string> input_data, string_data, csv;
  std::optional<std::string> measurement_mode, request_distribution, shared_memory;
  std::vector<std::string> shapes;
  std::optional<int> batch_size, string_length;
  std::optional<int> measurement_request_count, max_trials, percentile;
  std::optional<int64_t> measurement_interval_ms, output_shared_memory_size;
  std::optional<double> stability_percentage, latency_threshold_ms;
  std::optional<bool> streaming;
  std::optional<int> sequence_length, num_of_sequences;
  std::optional<double> sequence_length_variation;
  std::optional<std::string> sequence_id_range;
  std::optional<std::string> model_version;

  // The flag of one that is given: the load then is of tensors.
  std::optional<std::string> Given() const;
};

// What both kinds of load share, as text where tensors allow more than prompts do.
struct TensorLoad {
  bench::LoadOptions load;
  std::string concurrency;   // "N" or "start:end:step"
  std::string request_rate;  // the same; "0": none
  std::optional<int> num_requests;
  std::string json;
};

template <typename Options>
void AddTensorLoad(config::Schema<Options>& schema);

// "start", "start:end" or "start:end:step", inclusive; kInvalidArgument names `flag`.
Result<std::vector<double>> ParseRange(const std::string& flag, const std::string& text,
                                       bool is_integer);

Status RunTensorLoad(const TensorLoad& common, const TensorLoadOptions& options);

template <typename Options>
void AddTensorLoad(config::Schema<Options>& schema) {
  using config::AtLeast;
  using config::OneOf;
  using config::Range;
  schema.Section("Tensors (of any model)");
  schema.Add(
      "input_data", [](Options& o) -> auto& { return o.tensors.input_data; },
      "random (unless given), zero, a JSON file of items under \"data\", or a directory with a "
      "file per input.");
  schema.Add(
      "shape", [](Options& o) -> auto& { return o.tensors.shapes; },
      "NAME:d,d: dimensions of an input where the model leaves them open, without the batch.");
  schema.Add(
      "batch_size", [](Options& o) -> auto& { return o.tensors.batch_size; },
      "Items of each request (1 unless given).", AtLeast(1));
  schema.Alias("-b", "batch_size");
  schema.Add(
      "string_length", [](Options& o) -> auto& { return o.tensors.string_length; },
      "Of random BYTES elements (128 unless given).", AtLeast(0));
  schema.Add(
      "string_data", [](Options& o) -> auto& { return o.tensors.string_data; },
      "Every BYTES element, instead of random letters.");
  schema.Add(
      "model_version", [](Options& o) -> auto& { return o.tensors.model_version; },
      "The latest unless given.");
  schema.Alias("-x", "model_version");
  schema.Add(
      "streaming", [](Options& o) -> auto& { return o.tensors.streaming; },
      "Over gRPC: requests on streams, as decoupled models need it.", config::Switch());
  schema.Add(
      "shared_memory", [](Options& o) -> auto& { return o.tensors.shared_memory; },
      "system: tensors travel in a region that the server maps (--allow-client-shm=true there).",
      OneOf({"none", "system"}));
  schema.Add(
      "output_shared_memory_size",
      [](Options& o) -> auto& { return o.tensors.output_shared_memory_size; },
      "Bytes of room for each output there (102400 unless given).", AtLeast(1));
  schema.Add(
      "sequence_length", [](Options& o) -> auto& { return o.tensors.sequence_length; },
      "Requests of each sequence, of models that have them (20 unless given).", AtLeast(1));
  schema.Add(
      "sequence_length_variation",
      [](Options& o) -> auto& { return o.tensors.sequence_length_variation; },
      "Percent by which lengths of sequences lie around that (20 unless given).", Range(0, 100));
  schema.Add(
      "sequence_id_range", [](Options& o) -> auto& { return o.tensors.sequence_id_range; },
      "first or first:last: ids of sequences, in turns (1:4294967295 unless given).");
  schema.Add(
      "num_of_sequences", [](Options& o) -> auto& { return o.tensors.num_of_sequences; },
      "Sequences at once with --request-rate (4 unless given); else each request under way is of "
      "one.",
      Range(1, 4096));
  schema.Section("Measurement (of tensors)");
  schema.Add(
      "measurement_interval", [](Options& o) -> auto& { return o.tensors.measurement_interval_ms; },
      "Milliseconds of a window (5000 unless given).", AtLeast(1));
  schema.Alias("-p", "measurement_interval");
  schema.Add(
      "measurement_mode", [](Options& o) -> auto& { return o.tensors.measurement_mode; },
      "Windows end by time (unless given) or by the number of requests.",
      OneOf({"time_windows", "count_windows"}));
  schema.Add(
      "measurement_request_count",
      [](Options& o) -> auto& { return o.tensors.measurement_request_count; },
      "Requests of a window of count_windows (50 unless given).", AtLeast(1));
  schema.Add(
      "stability_percentage", [](Options& o) -> auto& { return o.tensors.stability_percentage; },
      "How far throughput and latency of the last three windows may lie from their mean (10 "
      "unless given).",
      Range(0, 1e6));
  schema.Alias("-s", "stability_percentage");
  schema.Add(
      "max_trials", [](Options& o) -> auto& { return o.tensors.max_trials; },
      "Windows until a load is called unsteady (10 unless given).", AtLeast(3));
  schema.Alias("-r", "max_trials");
  schema.Add(
      "percentile", [](Options& o) -> auto& { return o.tensors.percentile; },
      "Of the latency that decides and is reported, instead of the average.", Range(1, 99));
  schema.Add(
      "latency_threshold", [](Options& o) -> auto& { return o.tensors.latency_threshold_ms; },
      "Milliseconds; a load that takes longer is the last of its range.", AtLeast(0));
  schema.Alias("-l", "latency_threshold");
  schema.Add(
      "request_distribution", [](Options& o) -> auto& { return o.tensors.request_distribution; },
      "Gaps of a request rate (constant unless given).", OneOf({"constant", "poisson"}));
  schema.Add(
      "latency_report_file", [](Options& o) -> auto& { return o.tensors.csv; },
      "CSV with a row per load, by rising throughput.");
  schema.Alias("-f", "latency_report_file");
  schema.Section("Options of perf_analyzer that are not supported");
  schema.Refuse("binary_search", "give a range; every load of it is measured", "false",
                config::Switch());
  schema.Refuse("request_intervals", "use --request-rate with --request-distribution");
  schema.Refuse("collect_metrics", "read the metrics port beside it", "false", config::Switch());
  schema.Refuse("profile_export_file", "use --json or -f");
  schema.Refuse("verbose_csv", "use --json for more figures", "false", config::Switch());
  schema.Refuse("service_kind", "only servers of this protocol are measured", "triton");
  schema.Refuse("ssl_grpc_use_ssl", "only connections without TLS are made", "false",
                config::Switch());
  schema.Refuse("grpc_compression_algorithm", "requests are sent as they are", "none");
  constexpr char kOneThread[] = "one thread sends all requests without waiting for answers";
  schema.template Note<bool>("async", kOneThread, config::Switch());
  schema.Alias("-a", "async");
  schema.template Note<bool>("sync", kOneThread, config::Switch());
  schema.template Note<int>("max_threads", kOneThread, AtLeast(1));
}

}  // namespace inflight::tool
