// SPDX-License-Identifier: Apache-2.0
#include "operator_trace.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "tensor/element.h"

namespace inflight::gpu {
namespace {

ops::OpTable g_inner;
std::vector<TracedOutput>* g_trace = nullptr;
int g_layer = 0;

std::vector<std::byte> Bytes(const void* data, size_t num_bytes, Device& device) {
  std::vector<std::byte> bytes(num_bytes);
  const Status copied = device.Copy(bytes.data(), data, num_bytes);
  if (!copied.ok()) bytes.clear();
  return bytes;
}

// Row r begins at element r * stride.
Status Record(const std::string& name, const TensorView& view, int64_t width, int64_t stride,
              const TensorView& scales, Stream& stream) {
  Device& device = stream.device();
  if (device.kind() == DeviceKind::kCuda) {
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
      return Internal(fmt::format("{}: {}", name, cudaGetErrorString(error)));
  }
  TracedOutput output{.name = name, .num_rows = view.shape[0], .width = width, .values = {}};
  const auto elements = static_cast<size_t>((output.num_rows - 1) * stride + width);
  if (output.num_rows > 0) {
    const auto bytes = Bytes(view.data, elements * SizeOf(view.dtype), device);
    std::vector<std::byte> factors;
    if (!scales.empty())
      factors = Bytes(scales.data, static_cast<size_t>(output.num_rows) * sizeof(float), device);
    for (int64_t r = 0; r < output.num_rows; ++r) {
      const float scale = factors.empty() ? 1.0F : LoadFloat(factors.data(), DType::kF32, r);
      for (int64_t i = 0; i < width; ++i)
        output.values.push_back(scale * LoadFloat(bytes.data(), view.dtype, r * stride + i));
    }
  }
  g_trace->push_back(std::move(output));
  return Status::Ok();
}

Status Record(const std::string& name, const TensorView& view, Stream& stream,
              const TensorView& scales = {}) {
  const int64_t width = view.num_elements() / std::max<int64_t>(view.shape[0], 1);
  return Record(name, view, width, width, scales, stream);
}

std::string InLayer(const char* name) { return fmt::format("layer {} {}", g_layer, name); }

Status Embed(const ops::EmbedParams& p, Stream& stream) {
  RETURN_IF_ERROR(g_inner.embed(p, stream));
  g_layer = 0;
  return Record("embed", p.y, stream);
}

Status AddNorm(const ops::AddNormParams& p, Stream& stream) {
  RETURN_IF_ERROR(g_inner.add_norm(p, stream));
  RETURN_IF_ERROR(Record(InLayer("residual"), p.residual, stream));
  return Record(InLayer("norm"), p.y, stream, p.y_scales);
}

Status QkvRopeKv(const ops::QkvRopeKvParams& p, Stream& stream) {
  g_layer = p.layer;
  RETURN_IF_ERROR(g_inner.qkv_rope_kv(p, stream));
  const int64_t width = p.q.shape[1] * p.q.shape[2];
  return Record(InLayer("q"), p.q, width, p.q_stride == 0 ? width : p.q_stride, {}, stream);
}

Status Attention(const ops::AttentionParams& p, Stream& stream) {
  RETURN_IF_ERROR(g_inner.attention(p, stream));
  return Record(InLayer("attention"), p.y, stream);
}

Status Linear(const ops::LinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(g_inner.linear(p, stream));
  return Record(InLayer("linear"), p.y, stream);
}

Status GatedLinear(const ops::GatedLinearParams& p, Stream& stream) {
  RETURN_IF_ERROR(g_inner.gated_linear(p, stream));
  return Record(InLayer("gated linear"), p.y, stream, p.y_scales);
}

Status LmHead(const ops::LmHeadParams& p, Stream& stream) {
  RETURN_IF_ERROR(g_inner.lm_head(p, stream));
  return Record("logits", p.logits, stream);
}

}  // namespace

ops::OpTable Traced(const ops::OpTable& inner, std::vector<TracedOutput>* trace) {
  g_inner = inner;
  g_trace = trace;
  ops::OpTable table = inner;
  table.embed = Embed;
  table.add_norm = AddNorm;
  table.qkv_rope_kv = QkvRopeKv;
  table.attention = Attention;
  table.linear = Linear;
  table.gated_linear = GatedLinear;
  table.lm_head = LmHead;
  return table;
}

Comparison Compare(const std::vector<TracedOutput>& expected,
                   const std::vector<TracedOutput>& actual, double bound) {
  Comparison result;
  for (size_t i = 0; i < std::max(expected.size(), actual.size()); ++i) {
    std::string line;
    double relative = std::numeric_limits<double>::infinity();
    if (i >= expected.size() || i >= actual.size()) {
      line = fmt::format("{} is in one trace only",
                         i < actual.size() ? actual[i].name : expected[i].name);
    } else if (const TracedOutput& want = expected[i], &got = actual[i];
               want.values.size() != got.values.size()) {
      line = fmt::format("{} has {} x {} elements, {} x {} in the other", got.name, got.num_rows,
                         got.width, want.num_rows, want.width);
    } else {
      double norm = 0;
      double difference = 0;
      double worst = -1;
      size_t worst_at = 0;
      size_t num_nan = 0;
      for (size_t k = 0; k < want.values.size(); ++k) {
        if (!std::isfinite(got.values[k])) {
          if (num_nan++ == 0) worst_at = k;
          continue;
        }
        const double delta = std::abs(double{got.values[k]} - want.values[k]);
        norm += double{want.values[k]} * want.values[k];
        difference += delta * delta;
        if (num_nan == 0 && delta > worst) {
          worst = delta;
          worst_at = k;
        }
      }
      if (num_nan == 0) relative = std::sqrt(difference / std::max(norm, 1e-30));
      const auto width = static_cast<size_t>(std::max<int64_t>(want.width, 1));
      line = fmt::format("{}: relative {:.2e}, worst at row {} of {}, column {} of {}: {} for {}",
                         want.name, relative, worst_at / width, want.num_rows, worst_at % width,
                         width, want.values.empty() ? 0 : got.values[worst_at],
                         want.values.empty() ? 0 : want.values[worst_at]);
      if (num_nan > 0) line += fmt::format(", {} of {} not finite", num_nan, want.values.size());
      if (want.name != got.name) line += fmt::format(" (against {})", got.name);
    }
    result.worst = std::max(result.worst, relative);
    if (relative > bound && result.first_bad.empty()) result.first_bad = line;
    result.report += line + "\n";
  }
  return result;
}

}  // namespace inflight::gpu
