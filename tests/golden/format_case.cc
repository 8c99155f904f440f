// SPDX-License-Identifier: Apache-2.0
#include "format_case.h"

#include <gtest/gtest.h>

#include <cmath>

#include "builder/builder.h"
#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"

namespace inflight::golden {
namespace {

using builder::FormatField;
using builder::WeightFormat;
using model::QuantAlgo;

// How far logits may lie from transformers', in parts of how far those lie from their mean: between
// what rounding adds up to, and sqrt(2) of logits that have nothing to do with them. A rounded
// weight is off by u of its row's spread, and so is what each of 4 linears of 1 to 6 layers adds. u
// is 2^-9 of bfloat16; of codes in steps of s it is s / sqrt(12), with s = max / 2^(bits - 1) and
// rows whose largest weight is about 3 spreads 0.007 of int8 and 0.11 of int4.
// e4m3, of weights and activations, is off by at most 2^-4 of each number: 0.02 of both together.
double BoundOf(const WeightFormat& format) {
  switch (format.algo) {
    case QuantAlgo::kW4A16:
    case QuantAlgo::kW4A16Gptq:
      return 0.7;
    case QuantAlgo::kFp8PerChannelPerToken:
      return 0.25;
    default:
      return 0.1;
  }
}

double RelativeError(const Expected& expected, const std::vector<std::vector<float>>& logits) {
  const size_t vocab = logits.front().size();
  double error = 0, spread = 0;
  for (size_t i = 0; i < expected.positions.size(); ++i) {
    const std::span<const float> want(expected.logits.data() + i * vocab, vocab);
    const std::vector<float>& got = logits[static_cast<size_t>(expected.positions[i])];
    double mean = 0;
    for (const float value : want) mean += value / static_cast<double>(vocab);
    for (size_t v = 0; v < vocab; ++v) {
      error += std::pow(double{got[v]} - double{want[v]}, 2);
      spread += std::pow(double{want[v]} - mean, 2);
    }
  }
  return std::sqrt(error / spread);
}

ops::OpTable TableOf(const model::ModelConfig& config, Device& device) {
  const ops::ShapeClass shape = model::KernelShape(config);
  return device.kind() == DeviceKind::kCpu ? ops::CpuOpTables(shape).front()
                                           : ops::CudaOpTables(shape, device).front();
}

}  // namespace

void ExpectLogitsFollow(const FormatCase& of, Device& device) {
  const auto& [name, format] = of;
  const DType computed = device.kind() == DeviceKind::kCpu ? DType::kF32 : DType::kBF16;
  builder::OpenOptions options{
      .dtype = format.field == FormatField::kDType ? format.dtype : computed,
      .quant_algo = format.algo};
  if (HasGroups(format.algo)) options.group_size = kFormatGroupSize;
  const auto engine = builder::Open(DataDir() / name, device, options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_EQ((*engine)->config.quant_algo, format.algo);
  const Expected expected = ReadReference(DataDir() / name).at(1);
  const std::vector<TokenId> ids = expected.Whole();
  const size_t whole[] = {ids.size()};
  PagedModel model(*engine, TableOf((*engine)->config, device), device, 1, kBlockSize);
  const double error = RelativeError(expected, AllLogits(model, ids, whole));
  EXPECT_LE(error, BoundOf(format));
  testing::Test::RecordProperty("error", std::to_string(error));
}

}  // namespace inflight::golden
