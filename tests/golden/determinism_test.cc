// SPDX-License-Identifier: Apache-2.0
// --deterministic on the CPU: a request's answer is made of the request alone, also on another
// number of threads, for each table of operators and form of weights.
#include <gtest/gtest.h>

#include "builder/builder.h"
#include "determinism_cases.h"
#include "golden_reference.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::golden {
namespace {

struct Form {
  std::string name;
  std::string model;
  DType dtype;
  model::QuantAlgo algo = model::QuantAlgo::kNone;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class DeterminismTest : public testing::TestWithParam<Form> {};

TEST_P(DeterminismTest, ARequestAnswersAloneWhatItAnswersInEveryOtherWay) {
  const auto one_thread = Device::Cpu(1);
  const auto three_threads = Device::Cpu(3);
  auto opened =
      builder::Open(DataDir() / GetParam().model, *one_thread,
                    {.dtype = GetParam().dtype, .quant_algo = GetParam().algo, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const std::shared_ptr<const model::Engine> engine = *std::move(opened);
  for (const ops::OpTable& table : ops::CpuOpTables(model::KernelShape(engine->config))) {
    // Plain loops, the same for every form, and slow.
    if (table.name == "reference" && GetParam().dtype != DType::kF32) continue;
    SCOPED_TRACE(table.name);
    ExpectSameAnswersInEveryWay(engine, *one_thread, *three_threads, table.name, /*num_rows=*/8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, DeterminismTest,
    testing::Values(Form{"gpt2_float32", "gpt2_tied", DType::kF32},
                    Form{"llama_bfloat16", "llama_gqa4", DType::kBF16},
                    Form{"llama_head80_bfloat16", "llama_head80", DType::kBF16},
                    Form{"llama_float16", "llama_gqa4", DType::kF16},
                    Form{"gemma2_caps_bfloat16", "gemma2_caps", DType::kBF16},
                    Form{"qwen3_norms_bfloat16", "qwen3_gqa2", DType::kBF16},
                    Form{"gpt_oss_bfloat16", "gpt_oss_mxfp4", DType::kBF16},
                    Form{"llama_odd_width_float32", "llama_odd_width", DType::kF32},
                    Form{"gpt2_int8", "gpt2_tied", DType::kBF16, model::QuantAlgo::kW8A16},
                    Form{"llama_int4", "llama_gqa4", DType::kF32, model::QuantAlgo::kW4A16}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace inflight::golden
