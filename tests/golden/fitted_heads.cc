// SPDX-License-Identifier: Apache-2.0
#include "fitted_heads.h"

#include <cmath>
#include <map>
#include <span>
#include <string>

#include "artifact/safetensors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "constants.h"
#include "ops/backend.h"
#include "paged_model.h"
#include "tensor/element.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

constexpr double kRidge = 1e-3;  // of the mean square of a state

// States [num_tokens, width] of a text.
std::vector<std::vector<double>> StatesOf(PagedModel& paged, size_t sequence,
                                          std::span<const TokenId> text) {
  const Piece piece = {sequence, text};
  paged.Step(std::span(&piece, 1), /*last_only=*/true);
  const TensorView states = paged.decoder().States();
  const int64_t width = states.shape[1];
  std::vector<std::vector<double>> rows(text.size());
  for (size_t t = 0; t < rows.size(); ++t)
    for (int64_t i = 0; i < width; ++i)
      rows[t].push_back(LoadFloat(states.data, states.dtype, static_cast<int64_t>(t) * width + i));
  return rows;
}

// In place: `a` [n][n] becomes its Cholesky factor (lower).
void Factor(std::vector<std::vector<double>>& a) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(sum) : sum / a[j][j];
    }
}

std::vector<double> Solve(const std::vector<std::vector<double>>& factor, std::vector<double> b) {
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= factor[i][k] * b[k];
    b[i] /= factor[i][i];
  }
  for (size_t i = b.size(); i-- > 0;) {
    for (size_t k = i + 1; k < b.size(); ++k) b[i] -= factor[k][i] * b[k];
    b[i] /= factor[i][i];
  }
  return b;
}

}  // namespace

Result<fs::path> WriteFittedHeads(const fs::path& model_dir,
                                  const std::vector<std::vector<TokenId>>& texts, int num_heads,
                                  DType dtype, const fs::path& work_dir) {
  fs::remove_all(work_dir);
  fs::create_directories(work_dir / "heads");
  const std::shared_ptr<Device> cpu = Device::Cpu(2);
  ASSIGN_OR_RETURN(const auto engine,
                   builder::Open(model_dir, *cpu, {.dtype = DType::kF32, .limits = {}}));
  ASSIGN_OR_RETURN(const ops::OpTable ops, ops::FindOps(*cpu, model::KernelShape(engine->config)));
  const auto width = static_cast<size_t>(engine->config.hidden_size);
  const auto vocab = static_cast<size_t>(engine->config.vocab_size);
  std::vector<std::vector<std::vector<double>>> states;
  PagedModel paged(engine, ops, *cpu, texts.size(), kBlockSize);
  std::vector<std::vector<double>> gram(width, std::vector<double>(width));
  double squares = 0;
  size_t num_states = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    states.push_back(StatesOf(paged, i, texts[i]));
    num_states += states.back().size();
    for (const std::vector<double>& state : states.back())
      for (size_t a = 0; a < width; ++a) {
        squares += state[a] * state[a];
        for (size_t b = 0; b <= a; ++b) gram[a][b] += state[a] * state[b];
      }
  }
  for (size_t a = 0; a < width; ++a)
    gram[a][a] += kRidge * squares / static_cast<double>(num_states);
  Factor(gram);

  std::vector<artifact::TensorSpec> specs;
  const auto n = static_cast<int64_t>(width);
  for (int head = 0; head < num_heads; ++head) {
    const std::string name = std::to_string(head);
    specs.push_back({name + ".0.linear.weight", DType::kF32, {n, n}});
    specs.push_back({name + ".0.linear.bias", DType::kF32, {n}});
    specs.push_back({name + ".1.weight", DType::kF32, {static_cast<int64_t>(vocab), n}});
  }
  ASSIGN_OR_RETURN(auto writer, artifact::SafetensorsWriter::Create(
                                    work_dir / "heads/medusa_lm_head.safetensors", specs));
  const std::vector<std::byte> zeros(BytesOf(DType::kF32, n * (n + 1)));
  for (int head = 0; head < num_heads; ++head) {
    const auto ahead = static_cast<size_t>(head) + 2;
    std::map<TokenId, std::vector<double>> sums;  // of the states that a token follows
    for (size_t i = 0; i < texts.size(); ++i)
      for (size_t t = 0; t + ahead < texts[i].size(); ++t) {
        std::vector<double>& sum = sums[texts[i][t + ahead]];
        sum.resize(width);
        for (size_t a = 0; a < width; ++a) sum[a] += states[i][t][a];
      }
    std::vector<float> weight(vocab * width);
    for (const auto& [token, sum] : sums) {
      const std::vector<double> row = Solve(gram, sum);
      for (size_t a = 0; a < width; ++a)
        weight[static_cast<size_t>(token) * width + a] = static_cast<float>(row[a]);
    }
    RETURN_IF_ERROR(writer.Append(zeros));
    RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(weight))));
  }
  RETURN_IF_ERROR(writer.Finish());
  RETURN_IF_ERROR(WriteFile(work_dir / "heads/config.json",
                            R"({"medusa_num_heads": )" + std::to_string(num_heads) + "}"));
  RETURN_IF_ERROR(builder::Convert({.model_dir = model_dir,
                                    .output_dir = work_dir / "checkpoint",
                                    .dtype = std::string(DTypeName(dtype)),
                                    .medusa = {.dir = work_dir / "heads"}}));
  return work_dir / "checkpoint";
}

Result<std::shared_ptr<const model::Engine>> OpenWithFittedHeads(
    const fs::path& model_dir, const std::vector<std::vector<TokenId>>& texts, int num_heads,
    DType dtype, Device& device, const fs::path& work_dir) {
  ASSIGN_OR_RETURN(const fs::path checkpoint,
                   WriteFittedHeads(model_dir, texts, num_heads, dtype, work_dir));
  auto opened = builder::Open(checkpoint, device);
  fs::remove_all(work_dir);
  return opened;
}

}  // namespace inflight::golden
