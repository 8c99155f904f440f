// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "base/log.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/table.h"

namespace inflight::ops::cpu {
namespace {

constexpr double kRivalMustWinBy = 1.3;
constexpr int kTrialRows = 8;
constexpr int kTrialFeatures = 1024;  // a panel of 128 KiB: in the second-level cache

// Seconds for one packed bf16 panel, the best of several rounds.
double TimePanel(const KernelSet& kernels) {
  std::vector<BFloat16> panel(kPanelColumns * kTrialFeatures + 32);
  std::vector<BFloat16> x(kTrialRows * kTrialFeatures);
  for (size_t i = 0; i < panel.size(); ++i)
    panel[i] = BFloat16::FromFloat(static_cast<float>(i % 251) / 251 - 0.5F);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = BFloat16::FromFloat(static_cast<float>(i % 241) / 241 - 0.5F);
  std::array<const void*, kTrialRows> rows;
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = x.data() + r * kTrialFeatures;
  alignas(64) float sums[kTrialRows * kPanelColumns];
  const PanelArgs args = {rows.data(), kTrialRows, panel.data(), kTrialFeatures, sums};
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 100; ++round) {
    const auto start = std::chrono::steady_clock::now();
    kernels.panel_bf16(args);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

const KernelSet& KernelsNamed(std::string_view name) {
  for (const KernelSet* kernels : {&kAmx, &kAvx512Bf16, &kAvx512})
    if (kernels->name == name) return *kernels;
  return kAvx2;
}

}  // namespace

std::vector<OpTable> OpTables(const ShapeClass& shape) {
  std::vector<OpTable> tables;
  if (shape.head_dim > kMaxHeadDim) return tables;
  const CpuFeatures& features = GetCpuFeatures();
  // Every processor with VDPBF16PS has VPDPBUSD; a virtual machine may hide it.
  const bool is_integer = IsInteger(shape.weight_dtype);
  const bool has_bf16 = shape.weight_dtype == DType::kBF16 || shape.kv_dtype == DType::kBF16;
  if (features.amx && (is_integer || has_bf16)) tables.push_back(Table<kAmx>());
  if (features.avx512_bf16 && (features.avx512_vnni || !is_integer))
    tables.push_back(Table<kAvx512Bf16>());
  if (features.avx512_vnni && is_integer) tables.push_back(Table<kAvx512Vnni>());
  if (features.avx512) tables.push_back(Table<kAvx512>());
  if (features.avx2) tables.push_back(Table<kAvx2>());
  return tables;
}

size_t FastestTable(const ShapeClass& shape) {
  const std::vector<OpTable> tables = OpTables(shape);
  if (tables.size() < 2 || shape.weight_dtype != DType::kBF16) return 0;
  const double first = TimePanel(KernelsNamed(tables[0].name));
  size_t best = 0;
  double best_time = first / kRivalMustWinBy;
  for (size_t i = 1; i < tables.size(); ++i) {
    const double time = TimePanel(KernelsNamed(tables[i].name));
    logging::Info("bf16 kernels tried", {{"first", tables[0].name},
                                         {"first_us", first * 1e6},
                                         {"rival", tables[i].name},
                                         {"rival_us", time * 1e6}});
    if (time > best_time) continue;
    best = i;
    best_time = time;
  }
  return best;
}

}  // namespace inflight::ops::cpu
