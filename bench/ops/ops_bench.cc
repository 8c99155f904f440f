// SPDX-License-Identifier: Apache-2.0
// Linears of a Llama-3.2-1B shape, and decode attention, against the limits of this machine
// measured in the same run. CSV on standard output; lines for people on standard error.
//
//   ops_bench [--table NAME] [--dtype bfloat16] [--m 1,4,8,16,64] [--seconds 0.5] [--threads 0]
//             [--group-size 0] [--offsets] [--scale-blocks 0] [--shape 4096x14336]
//
// Integer weights (--dtype int8, int4) have a scale for each row, or for each group of so many
// elements, and offsets beside them; their activations are bfloat16. Bytes count the scales. With
// --shape one linear of that shape is measured alone.
//
// Weights rotate over more than the caches hold, so each call reads its own from memory. `limit_us`
// is max(bytes / read bandwidth, flop / peak), `fraction` = limit_us / median_us. The rows named
// model are the sums over one forward pass.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/status_macros.h"
#include "bench/limits/limits.h"
#include "cases.h"
#include "support.h"
#include "tensor/buffer.h"

namespace inflight::ops {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRotationBytes = size_t{384} << 20;  // twelve times the last-level cache

struct Options {
  std::string table;
  std::string dtype = "bfloat16";
  std::vector<int> num_tokens = {1, 4, 8, 16, 64};
  double seconds = 0.5;
  int num_threads = 0;
  int64_t group_size = 0;
  bool has_offsets = false;
  int scale_blocks = 0;
  std::string shape;
};

struct Times {
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
};

// Calls run(i) for i = 0, 1, ... for `seconds` and at least ten times after one to warm up.
template <typename Run>
Times Measure(double seconds, const Run& run) {
  std::vector<double> us;
  run(0);
  const auto begin = Clock::now();
  for (int i = 1; us.size() < 10 || Clock::now() - begin < std::chrono::duration<double>(seconds);
       ++i) {
    const auto start = Clock::now();
    run(i);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(us.begin(), us.end());
  const auto at = [&](double q) { return us[static_cast<size_t>(q * (us.size() - 1) + 0.5)]; };
  return {at(0.5), at(0.1), at(0.9)};
}

class Bench {
 public:
  Bench(const Options& options, Device& device)
      : options_(options), device_(device), stream_(device) {}

  Status Run();

 private:
  Status RunLinear(const OpTable& table, const ModelLinear& linear, int num_tokens);
  Status RunAttention(const OpTable& table, int num_rows, int seq_len);
  void Print(const std::string& table, const std::string& op, int m, int64_t n, int64_t k,
             const Times& times, double bytes, double flop) const;
  DType ActivationDType() const { return IsInteger(dtype_) ? DType::kBF16 : InputDType(dtype_); }
  double PeakFlops(const std::string& table) const {
    const bool has_bf16 = table == "cpu/avx512_bf16" || table == "cpu/amx";
    if (IsInteger(dtype_)) return std::max(limits_.fp32_flops, limits_.int8_ops);
    return dtype_ == DType::kBF16 && has_bf16 ? limits_.bf16_flops : limits_.fp32_flops;
  }

  const Options& options_;
  Device& device_;
  Stream stream_;
  DType dtype_ = DType::kBF16;
  bench::MachineLimits limits_;
  std::vector<Times> model_;  // sums over a forward pass, one for each of options_.num_tokens
  double model_bytes_ = 0;
  double model_flop_per_token_ = 0;
};

void Check(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "ops_bench: {}\n", status.ToString());
  std::exit(1);
}

void Bench::Print(const std::string& table, const std::string& op, int m, int64_t n, int64_t k,
                  const Times& t, double bytes, double flop) const {
  const double limit_us = 1e6 * std::max(bytes / limits_.read_bytes_per_s, flop / PeakFlops(table));
  fmt::print("\"{}\",{},{},{},{},{},{},{:.1f},{:.1f},{:.1f},{:.2f},{:.1f},{:.1f},{:.3f}\n",
             limits_.cpu_name, device_.cpu_pool().num_threads(), table, op, DTypeName(dtype_), m,
             fmt::format("{}x{}", n, k), t.median_us, t.p10_us, t.p90_us, bytes / t.median_us / 1e3,
             flop / t.median_us / 1e3, limit_us, limit_us / t.median_us);
  std::fflush(stdout);
}

// Random bits of ordinary size: zeros run faster than numbers do.
void FillRandom(std::byte* data, size_t bytes, DType dtype) {
  Random random(1);
  if (IsInteger(dtype)) {  // all bits are codes
    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
      const uint64_t bits = random.Next();
      std::memcpy(data + i, &bits, sizeof(bits));
    }
    return;
  }
  const size_t n = bytes / SizeOf(dtype);
  std::vector<float> some(4099);
  for (float& v : some) v = random.Uniform();
  for (size_t i = 0; i < n; ++i) {
    const float v = some[i % some.size()];
    if (dtype == DType::kBF16)
      reinterpret_cast<BFloat16*>(data)[i] = BFloat16::FromFloat(v);
    else if (dtype == DType::kF16)
      reinterpret_cast<Float16*>(data)[i] = Float16::FromFloat(v);
    else
      reinterpret_cast<float*>(data)[i] = v;
  }
}

// Weights of one shape, enough of them that each call reads its own from memory.
class RotatingWeights {
 public:
  static Result<RotatingWeights> Create(Device& device, const Weight& form, size_t per_call,
                                        bool has_offsets) {
    const size_t codes = WeightBytes(form.dtype, form.layout, form.out_features, form.in_features);
    const int64_t num_scales =
        NumScales(form.layout, form.out_features, form.in_features, form.group_size);
    const int64_t bytes_of_scales = form.blocks.empty()
                                        ? num_scales * int64_t{sizeof(float)}
                                        : num_scales / form.blocks.groups * form.blocks.num_bytes();
    const size_t scales = IsInteger(form.dtype) ? static_cast<size_t>(bytes_of_scales) : 0;
    RotatingWeights weights(form, codes, scales, has_offsets);
    weights.num_calls_ = std::max<size_t>(2, kRotationBytes / (weights.bytes() * per_call) + 1);
    const size_t count = weights.num_calls_ * per_call;
    ASSIGN_OR_RETURN(weights.codes_, Buffer::Allocate(device, "codes", count * codes));
    FillRandom(weights.codes_.data(), weights.codes_.size(), form.dtype);
    if (scales == 0) return weights;
    ASSIGN_OR_RETURN(weights.scales_,
                     Buffer::Allocate(device, "scales", weights.scale_bytes(count)));
    if (form.blocks.empty())
      FillRandom(weights.scales_.data(), weights.scales_.size(), DType::kF32);
    else
      std::memset(weights.scales_.data(), 0x11, weights.scales_.size());  // units are 6e-4
    return weights;
  }

  size_t bytes() const { return codes_of_one_ + scale_bytes(1); }
  size_t num_calls() const { return num_calls_; }
  Weight operator[](size_t i) const {
    Weight weight = form_;
    weight.data = codes_.data() + i * codes_of_one_;
    if (scales_of_one_ == 0) return weight;
    const std::byte* const scales = scales_.data() + scale_bytes(i);
    const std::byte* const offsets = has_offsets_ ? scales + scales_of_one_ : nullptr;
    if (weight.blocks.empty()) {
      weight.scales = reinterpret_cast<const float*>(scales);
      weight.offsets = reinterpret_cast<const float*>(offsets);
    } else {
      weight.scale_blocks = reinterpret_cast<const uint8_t*>(scales);
      weight.offset_blocks = reinterpret_cast<const uint8_t*>(offsets);
    }
    return weight;
  }

 private:
  RotatingWeights(const Weight& form, size_t codes, size_t scales, bool has_offsets)
      : form_(form), codes_of_one_(codes), scales_of_one_(scales), has_offsets_(has_offsets) {}
  size_t scale_bytes(size_t count) const { return count * scales_of_one_ * (has_offsets_ ? 2 : 1); }

  Weight form_;
  size_t codes_of_one_;   // bytes
  size_t scales_of_one_;  // bytes
  bool has_offsets_;
  size_t num_calls_ = 0;
  Buffer codes_, scales_;
};

Status Bench::RunLinear(const OpTable& table, const ModelLinear& linear, int num_tokens) {
  const size_t weights_per_call = linear.gated ? 2 : 1;
  ASSIGN_OR_RETURN(const RotatingWeights weight,
                   RotatingWeights::Create(device_,
                                           {.dtype = dtype_,
                                            .layout = CpuWeightLayout(dtype_),
                                            .out_features = linear.out_features,
                                            .in_features = linear.in_features,
                                            .blocks = {.groups = options_.scale_blocks},
                                            .group_size = options_.group_size},
                                           weights_per_call, options_.has_offsets));
  const DType x_dtype = ActivationDType();
  const Tensor x = Tensor::Random(x_dtype, {num_tokens, linear.in_features}, 1);
  const Tensor scratch(
      DType::kU8, {static_cast<int64_t>(LinearScratchBytes(dtype_, num_tokens, linear.in_features,
                                                           options_.group_size))});
  const bool head = std::string_view(linear.name) == "lm_head";
  std::vector<int> all_rows(static_cast<size_t>(num_tokens));
  for (int t = 0; t < num_tokens; ++t) all_rows[static_cast<size_t>(t)] = t;
  const Tensor rows = Tensor::Int32(all_rows);
  Tensor y(linear.gated ? x_dtype : DType::kF32, {num_tokens, linear.out_features});
  const Times times = Measure(options_.seconds, [&](int i) {
    const size_t at = static_cast<size_t>(i) % weight.num_calls() * weights_per_call;
    if (linear.gated)
      Check(table.gated_linear({.x = {.values = x.view()},
                                .gate = weight[at],
                                .up = weight[at + 1],
                                .y = y.view(),
                                .scratch = scratch.view()},
                               stream_));
    else if (head)
      Check(table.lm_head({.x = {.values = x.view()},
                           .rows = rows.view(),
                           .weight = weight[at],
                           .logits = y.view(),
                           .scratch = scratch.view()},
                          stream_));
    else
      Check(table.linear({.x = {.values = x.view()},
                          .weight = weight[at],
                          .y = y.view(),
                          .scratch = scratch.view()},
                         stream_));
  });
  const double bytes = static_cast<double>(weight.bytes() * weights_per_call);
  const double flop = 2.0 * num_tokens * linear.out_features * linear.in_features *
                      static_cast<double>(weights_per_call);
  Print(table.name, linear.name, num_tokens, linear.out_features, linear.in_features, times, bytes,
        flop);
  const auto which = static_cast<size_t>(
      std::find(options_.num_tokens.begin(), options_.num_tokens.end(), num_tokens) -
      options_.num_tokens.begin());
  model_[which].median_us += linear.per_model * times.median_us;
  model_[which].p10_us += linear.per_model * times.p10_us;
  model_[which].p90_us += linear.per_model * times.p90_us;
  if (which == 0) {
    model_bytes_ += linear.per_model * bytes;
    model_flop_per_token_ += linear.per_model * flop / num_tokens;
  }
  return Status::Ok();
}

// Decode rows of one layer: 32 query heads over 8 kv heads of 64.
Status Bench::RunAttention(const OpTable& table, int num_rows, int seq_len) {
  const DType kv_dtype = IsInteger(dtype_) ? DType::kBF16 : dtype_;
  const KvShape shape = {kv_dtype, 8, 64, 64};
  const std::vector<int> seq_lens(static_cast<size_t>(num_rows), seq_len);
  const PagedCache cache(shape, seq_lens, 1);
  std::vector<int> sequences;
  for (int s = 0; s < num_rows; ++s) {
    sequences.push_back(s);
    cache.Fill(0, s, seq_len, static_cast<uint64_t>(s));
  }
  const BatchArrays batch(
      cache, std::vector<SequenceRow>(static_cast<size_t>(num_rows), {1, seq_len}), sequences);
  const Tensor q = Tensor::Random(DType::kF32, {num_rows, 32, 64}, 1);
  const Tensor y(ActivationDType(), {num_rows, 32 * 64});
  const Times times = Measure(options_.seconds, [&](int) {
    Check(table.attention({.q = q.view(),
                           .batch = batch.view(),
                           .kv = cache.view(),
                           .layer = 0,
                           .scale = 0.125F,
                           .y = y.view()},
                          stream_));
  });
  const double keys = static_cast<double>(num_rows) * seq_len;
  Print(table.name, fmt::format("attention_ctx{}", seq_len), num_rows, 32, 64, times,
        keys * 2 * 8 * 64 * static_cast<double>(SizeOf(kv_dtype)), keys * 4 * 32 * 64);
  return Status::Ok();
}

// Of --shape, "4096x14336".
Result<ModelLinear> OneLinear(const std::string& shape) {
  ModelLinear linear = {.name = "linear"};
  char rest = 0;
  if (std::sscanf(shape.c_str(), "%dx%d%c", &linear.out_features, &linear.in_features, &rest) !=
          2 ||
      linear.out_features <= 0 || linear.in_features <= 0)
    return InvalidArgument("--shape: got " + shape + ", needed two numbers above 0 as 4096x14336");
  return linear;
}

Status Bench::Run() {
  const std::optional<DType> dtype = DTypeFromName(options_.dtype);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16 &&
                 !IsInteger(*dtype)))
    return InvalidArgument("--dtype: got " + options_.dtype +
                           ", needed float32, float16, bfloat16, int8 or int4");
  dtype_ = *dtype;
  if (!IsInteger(dtype_) && (options_.group_size != 0 || options_.has_offsets))
    return InvalidArgument("--group-size: got " + std::to_string(options_.group_size) + " of " +
                           options_.dtype + " weights, needed int8 or int4 ones");
  std::vector<ModelLinear> linears = OneBillionLinears();
  if (!options_.shape.empty()) {
    ASSIGN_OR_RETURN(const ModelLinear one, OneLinear(options_.shape));
    linears = {one};
  }
  ASSIGN_OR_RETURN(const OpTable table,
                   FindOps(device_,
                           {.weight_dtype = dtype_,
                            .kv_dtype = IsInteger(dtype_) ? DType::kBF16 : dtype_,
                            .head_dim = 64,
                            .num_heads = 32,
                            .num_kv_heads = 8},
                           options_.table));
  limits_ = bench::MeasureLimits(device_.cpu_pool());
  for (const bench::ThreadLimits& l : limits_.by_threads)
    fmt::print(stderr,
               "limits threads={} read={:.1f} GB/s fma={:.0f} GFLOP/s bf16={:.0f} GFLOP/s\n",
               l.num_threads, l.read_bytes_per_s * 1e-9, l.fp32_flops * 1e-9, l.bf16_flops * 1e-9);
  fmt::print(
      "device,threads,table,op,dtype,m,shape,median_us,p10_us,p90_us,gb_s,gflop_s,limit_us,"
      "fraction\n");
  model_.resize(options_.num_tokens.size());
  for (const ModelLinear& linear : linears)
    for (const int m : options_.num_tokens) RETURN_IF_ERROR(RunLinear(table, linear, m));
  if (!options_.shape.empty()) return Status::Ok();
  for (size_t i = 0; i < model_.size(); ++i)
    Print(table.name, "model", options_.num_tokens[i], 0, 0, model_[i], model_bytes_,
          model_flop_per_token_ * options_.num_tokens[i]);
  for (const int seq_len : {1024, 4096})
    for (const int rows : {1, 16}) RETURN_IF_ERROR(RunAttention(table, rows, seq_len));
  fmt::print(stderr, "read bandwidth before {:.1f}, after {:.1f} GB/s\n",
             limits_.read_bytes_per_s * 1e-9,
             bench::MeasureReadBytesPerS(device_.cpu_pool()) * 1e-9);
  return Status::Ok();
}

}  // namespace
}  // namespace inflight::ops

int main(int argc, char** argv) {
  inflight::ops::Options options;
  CLI::App app("Operators against the limits of this machine");
  app.add_option("--table", options.table,
                 "operator table; empty = the one that serving would use");
  app.add_option("--dtype", options.dtype,
                 "of weights and cache; of integers the cache is bfloat16");
  app.add_option("--m", options.num_tokens, "numbers of tokens in a step")->delimiter(',');
  app.add_option("--seconds", options.seconds, "for each line");
  app.add_option("--threads", options.num_threads, "0 = all usable cores");
  app.add_option("--group-size", options.group_size,
                 "of integer weights; 0 = a scale for each row");
  app.add_flag("--offsets", options.has_offsets, "beside the scales of groups");
  app.add_option("--scale-blocks", options.scale_blocks,
                 "groups of a block of scales and offsets; 0 = these are float32")
      ->check(CLI::Range(0, inflight::ScaleBlocks::kMaxGroups));
  app.add_option("--shape", options.shape, "one linear alone, out_features x in_features");
  CLI11_PARSE(app, argc, argv);
  const auto device = inflight::Device::Cpu(options.num_threads);
  const inflight::Status status = inflight::ops::Bench(options, *device).Run();
  if (status.ok()) return 0;
  fmt::print(stderr, "ops_bench: {}\n", status.ToString());
  return 1;
}
