// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ops/cuda/cuda_stream.h"
#include "ops/profile.h"

namespace inflight::ops {
namespace {

struct Call {
  const char* name;
  bool is_prefill;
  cudaEvent_t begin, end;
};

// Operators are plain functions, so what wraps them finds its state here.
struct Recorder {
  OpTable inner;
  std::vector<Call> calls;
  bool is_prefill = false;  // the step that is running
};

Recorder& TheRecorder() {
  static Recorder recorder;
  return recorder;
}

template <typename Params>
Status Record(const char* name, Kernel<Params> kernel, const Params& params, Stream& stream) {
  Recorder& recorder = TheRecorder();
  const cudaStream_t handle = cuda::AsCuda(stream).handle();
  Call call{name, recorder.is_prefill, nullptr, nullptr};
  cudaEventCreate(&call.begin);
  cudaEventCreate(&call.end);
  cudaEventRecord(call.begin, handle);
  const Status status = kernel(params, stream);
  cudaEventRecord(call.end, handle);
  recorder.calls.push_back(call);
  return status;
}

}  // namespace

void ResetProfile() { TakeProfile(); }

std::vector<ProfileEntry> TakeProfile() {
  std::map<std::pair<bool, std::string>, ProfileEntry> by_name;
  for (const Call& call : TheRecorder().calls) {
    cudaEventSynchronize(call.end);
    float ms = 0;
    cudaEventElapsedTime(&ms, call.begin, call.end);
    ProfileEntry& entry = by_name[{call.is_prefill, call.name}];
    entry.name = call.name;
    entry.is_prefill = call.is_prefill;
    ++entry.calls;
    entry.device_ms += ms;
    cudaEventDestroy(call.begin);
    cudaEventDestroy(call.end);
  }
  TheRecorder().calls.clear();
  std::vector<ProfileEntry> entries;
  for (auto& [name, entry] : by_name) entries.push_back(std::move(entry));
  std::sort(entries.begin(), entries.end(),
            [](const ProfileEntry& a, const ProfileEntry& b) { return a.device_ms > b.device_ms; });
  return entries;
}

namespace cuda {

OpTable Profiled(const OpTable& table) {
  TheRecorder().inner = table;
  OpTable wrapped = table;
  wrapped.name = "cuda/profiled";
  wrapped.can_capture = false;
  wrapped.embed = [](const EmbedParams& p, Stream& s) {
    return Record("embed", TheRecorder().inner.embed, p, s);
  };
  wrapped.add_norm = [](const AddNormParams& p, Stream& s) {
    return Record("add_norm", TheRecorder().inner.add_norm, p, s);
  };
  wrapped.qkv_rope_kv = [](const QkvRopeKvParams& p, Stream& s) {
    return Record("qkv_rope_kv", TheRecorder().inner.qkv_rope_kv, p, s);
  };
  wrapped.attention = [](const AttentionParams& p, Stream& s) {
    return Record("attention", TheRecorder().inner.attention, p, s);
  };
  wrapped.linear = [](const LinearParams& p, Stream& s) {
    const bool widens = p.weight.out_features > p.weight.in_features;
    const bool is_square = p.weight.out_features == p.weight.in_features;
    return Record(widens      ? "linear (wider)"
                  : is_square ? "linear (square)"
                              : "linear (narrower)",
                  TheRecorder().inner.linear, p, s);
  };
  wrapped.gated_linear = [](const GatedLinearParams& p, Stream& s) {
    return Record("gated_linear", TheRecorder().inner.gated_linear, p, s);
  };
  wrapped.lm_head = [](const LmHeadParams& p, Stream& s) {
    return Record("lm_head", TheRecorder().inner.lm_head, p, s);
  };
  wrapped.route = [](const RouteParams& p, Stream& s) {
    return Record("route", TheRecorder().inner.route, p, s);
  };
  wrapped.expert_gated_linear = [](const ExpertGatedLinearParams& p, Stream& s) {
    return Record("expert_gated_linear", TheRecorder().inner.expert_gated_linear, p, s);
  };
  wrapped.expert_linear = [](const ExpertLinearParams& p, Stream& s) {
    return Record("expert_linear", TheRecorder().inner.expert_linear, p, s);
  };
  if (table.quantize != nullptr)
    wrapped.quantize = [](const QuantizeParams& p, Stream& s) {
      return Record("quantize", TheRecorder().inner.quantize, p, s);
    };
  wrapped.plan_attention = [](const AttentionPlanParams& p, Stream& s) {
    TheRecorder().is_prefill = p.batch.num_rows > p.batch.num_decode_rows;
    if (TheRecorder().inner.plan_attention == nullptr) return Status::Ok();
    return Record("plan_attention", TheRecorder().inner.plan_attention, p, s);
  };
  return wrapped;
}

}  // namespace cuda
}  // namespace inflight::ops
