// SPDX-License-Identifier: Apache-2.0
#include "artifact/tensor_set.h"

#include <gmock/gmock.h>

#include "artifact/safetensors.h"
#include "artifact/test_files.h"

namespace inflight::artifact {
namespace {

using testing::HasSubstr;

class TensorSetTest : public FileTest {
 protected:
  void Write(const std::string& name, const std::vector<TensorSpec>& specs, size_t num_bytes) {
    auto writer = SafetensorsWriter::Create(dir() / name, specs);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    const std::string data(num_bytes, 'x');
    ASSERT_TRUE(writer->Append(BytesOf(data)).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
};

TEST_F(TensorSetTest, ShardsAreOneModel) {
  Write("model-1.safetensors", {{"a", DType::kU8, {2}}}, 2);
  Write("model-2.safetensors", {{"b", DType::kU8, {3}}}, 3);
  const auto index = dir() / "model.safetensors.index.json";
  ASSERT_TRUE(
      WriteFile(index,
                R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})")
          .ok());
  const auto set = TensorSet::OpenModel(dir());
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  EXPECT_EQ(set->tensors().size(), 2U);
  EXPECT_NE(set->Find("b"), nullptr);

  ASSERT_TRUE(WriteFile(index, R"({"weight_map": {"c": "model-1.safetensors"}})").ok());
  EXPECT_THAT(TensorSet::OpenModel(dir()).status().message(),
              HasSubstr("c: is not in model-1.safetensors"));
  ASSERT_TRUE(WriteFile(index, R"({"weight_map": {"a": "gone.safetensors"}})").ok());
  EXPECT_EQ(TensorSet::OpenModel(dir()).status().code(), StatusCode::kNotFound);
}

TEST_F(TensorSetTest, AnIndexCannotLeaveItsDirectory) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", "", "a/b"}) {
    ASSERT_TRUE(WriteFile(dir() / "model.safetensors.index.json",
                          std::string(R"({"weight_map": {"a": ")") + name + "\"}}")
                    .ok());
    EXPECT_THAT(TensorSet::OpenModel(dir()).status().message(), HasSubstr("same directory"));
  }
}

TEST_F(TensorSetTest, OneNameInTwoShardsIsAnError) {
  Write("1.safetensors", {{"a", DType::kU8, {2}}}, 2);
  Write("2.safetensors", {{"a", DType::kU8, {2}}, {"b", DType::kU8, {1}}}, 3);
  ASSERT_TRUE(WriteFile(dir() / "model.safetensors.index.json",
                        R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})")
                  .ok());
  EXPECT_THAT(TensorSet::OpenModel(dir()).status().message(), HasSubstr("a: is in another shard"));
}

TEST_F(TensorSetTest, SafetensorsAreTakenBeforePickledWeights) {
  Write("model.safetensors", {{"a", DType::kU8, {2}}}, 2);
  ASSERT_TRUE(WriteFile(dir() / "pytorch_model.bin", "x").ok());
  EXPECT_TRUE(TensorSet::OpenModel(dir()).ok());
  std::filesystem::remove(dir() / "model.safetensors");
  EXPECT_THAT(TensorSet::OpenModel(dir()).status().message(),
              HasSubstr("pytorch_model.bin: pickle: byte 0: 0x78 is no opcode"));
}

TEST_F(TensorSetTest, DirectoriesWithoutWeightsSayWhatWasLookedFor) {
  const Status status = TensorSet::OpenModel(dir()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("model.safetensors"),
                                               HasSubstr("pytorch_model.bin.index.json")));
}

}  // namespace
}  // namespace inflight::artifact
