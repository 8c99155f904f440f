// SPDX-License-Identifier: Apache-2.0
// A step of few tokens reads the experts that these chose, and no others: the others' weights lie
// in pages that may not be read.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "cases.h"
#include "compare.h"
#include "integer_weight.h"
#include "ops/experts.h"

namespace inflight::ops {
namespace {

constexpr int kExperts = 8;
constexpr int kHidden = 128;
constexpr int kInner = 64;
constexpr int kTokens = 2;
constexpr int kPerToken = 2;
constexpr int kPlaces = kTokens * kPerToken;
constexpr bool kIsChosen[kExperts] = {false, true, false, true, false, false, true, false};

// A copy of a weight whose experts can be made unreadable one by one.
class GuardedWeight {
 public:
  explicit GuardedWeight(const Weight& of)
      : weight_(of),
        num_bytes_(WeightBytes(of.dtype, of.layout, of.out_features, of.in_features)),
        memory_(
            mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
    std::memcpy(memory_, of.data, num_bytes_);
    weight_.data = memory_;
  }
  ~GuardedWeight() { munmap(memory_, num_bytes_); }
  GuardedWeight(const GuardedWeight&) = delete;
  GuardedWeight& operator=(const GuardedWeight&) = delete;

  const Weight& weight() const { return weight_; }
  size_t expert_bytes() const { return num_bytes_ / kExperts; }
  std::byte* expert(int e) const {
    return static_cast<std::byte*>(memory_) + static_cast<size_t>(e) * expert_bytes();
  }
  // The chosen experts alone are readable from here on.
  void Guard() const {
    for (int e = 0; e < kExperts; ++e)
      if (!kIsChosen[e]) {
        EXPECT_EQ(mprotect(expert(e), expert_bytes(), PROT_NONE), 0);
      }
  }

 private:
  Weight weight_;
  size_t num_bytes_;
  void* memory_;
};

// Whether the system can read there, which a kernel could too.
bool IsReadable(const std::byte* at) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const bool is_readable = write(ends[1], at, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return is_readable;
}

struct Form {
  const char* name;
  IntegerForm integers;
};

class ChosenExpertsTest : public testing::TestWithParam<Form> {
 protected:
  // The layer of `table`, of two tokens of which one chose experts 1 and 6, the other 3 and 6.
  std::vector<float> Run(const OpTable& table, const Weight& fc, const Weight& proj) {
    const Tensor logits = Tensor::Of(DType::kF32, {kTokens, kExperts},
                                     {0, 4, 0, 0, 0, 0, 4, 0,  //
                                      0, 0, 0, 4, 0, 0, 4, 0});
    const DType input = InputDType(fc.dtype);
    const Tensor x = Tensor::Random(input, {kTokens, kHidden}, 31);
    const Tensor begins(DType::kI32, {kExperts + 1}), tokens(DType::kI32, {kPlaces});
    const Tensor weights(DType::kF32, {kPlaces}), chosen(DType::kI32, {kPlaces});
    const Tensor chosen_weights(DType::kF32, {kPlaces});
    const ExpertRoutes routes = {begins.view(), tokens.view(), weights.view()};
    const Tensor scratch = ScratchOf(fc, kPlaces);
    Tensor inner(input, {kPlaces, kInner});
    Tensor y(DType::kF32, {kTokens, kHidden});
    EXPECT_EQ(table.route({.logits = logits.view(),
                           .experts_per_token = kPerToken,
                           .routes = routes,
                           .chosen = chosen.view(),
                           .chosen_weights = chosen_weights.view()},
                          stream_),
              Status::Ok());
    const auto* const begin = begins.view().as<const int32_t>();
    EXPECT_EQ(std::vector<int>(begin, begin + kExperts + 1),
              (std::vector<int>{0, 0, 1, 1, 2, 2, 2, 4, 4}));
    EXPECT_EQ(table.expert_gated_linear({.x = {.values = x.view()},
                                         .routes = routes,
                                         .weight = fc,
                                         .bias = {},
                                         .y = inner.view(),
                                         .scratch = scratch.view()},
                                        stream_),
              Status::Ok());
    EXPECT_EQ(table.expert_linear({.x = {.values = inner.view()},
                                   .routes = routes,
                                   .weight = proj,
                                   .bias = {},
                                   .y = y.view(),
                                   .scratch = scratch.view()},
                                  stream_),
              Status::Ok());
    return y.ToFloats();
  }

  void ExpectTheChosenAloneAreRead(const Weight& fc, const Weight& proj) {
    const GuardedWeight guarded_fc(fc), guarded_proj(proj);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (guarded_fc.expert_bytes() % page != 0 || guarded_proj.expert_bytes() % page != 0)
      GTEST_SKIP() << "an expert is no whole pages of " << page << " bytes";
    std::vector<OpTable> tables = VectorTables({.weight_dtype = fc.dtype});
    tables.push_back(ReferenceTable());
    std::vector<std::vector<float>> want;
    for (const OpTable& table : tables)
      want.push_back(Run(table, guarded_fc.weight(), guarded_proj.weight()));
    guarded_fc.Guard();
    guarded_proj.Guard();
    for (const GuardedWeight* const weight : {&guarded_fc, &guarded_proj})
      for (int e = 0; e < kExperts; ++e) {
        EXPECT_EQ(IsReadable(weight->expert(e)), kIsChosen[e]);
        EXPECT_EQ(IsReadable(weight->expert(e) + weight->expert_bytes() - 1), kIsChosen[e]);
      }
    for (size_t i = 0; i < tables.size(); ++i)
      EXPECT_TRUE(SameBits(Run(tables[i], guarded_fc.weight(), guarded_proj.weight()), want[i]))
          << tables[i].name;
  }

  std::unique_ptr<Device> device_ = Device::Cpu(3);
  Stream stream_{*device_};
};

TEST_P(ChosenExpertsTest, OtherExpertsAreNotRead) {
  const IntegerForm& form = GetParam().integers;
  const int64_t fc_rows = kExperts * 2 * kInner, proj_rows = kExperts * kHidden;
  if (!IsInteger(form.dtype)) {
    const WeightLayout layout = CpuWeightLayout(form.dtype);
    const PackedWeight fc(form.dtype, layout, Tensor::Random(form.dtype, {fc_rows, kHidden}, 32));
    const PackedWeight proj(form.dtype, layout,
                            Tensor::Random(form.dtype, {proj_rows, kInner}, 33));
    return ExpectTheChosenAloneAreRead(fc.weight(), proj.weight());
  }
  const auto fc = IntegerWeight::Some(form, fc_rows, kHidden, 32);
  const auto proj = IntegerWeight::Some(form, proj_rows, kInner, 33);
  ExpectTheChosenAloneAreRead(fc.weight, proj.weight);
}

INSTANTIATE_TEST_SUITE_P(Forms, ChosenExpertsTest,
                         testing::Values(Form{"float32", {DType::kF32}},
                                         Form{"bfloat16", {DType::kBF16}},
                                         Form{"float16", {DType::kF16}}, Form{"int8", {DType::kI8}},
                                         Form{"int8_groups", {DType::kI8, 32}},
                                         Form{"int4", {DType::kI4}},
                                         Form{"int4_offsets", {DType::kI4, 32, true}},
                                         Form{"mxfp4", {DType::kF4E2M1, 32}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace inflight::ops
