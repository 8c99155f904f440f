// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/prompt_table_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "artifact/safetensors.h"
#include "base/file.h"

namespace inflight::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PromptTableDirTest : public testing::Test {
 protected:
  PromptTableDirTest() { std::filesystem::create_directories(dir_); }
  ~PromptTableDirTest() override { std::filesystem::remove_all(dir_); }

  // As numpy.save writes a float32 matrix.
  void WriteNpy(const std::string& name, int rows, int columns, const std::vector<float>& values) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                         std::to_string(rows) + ", " + std::to_string(columns) + "), }";
    header.resize(117, ' ');
    header += '\n';
    std::string file("\x93NUMPY\x01\0\x76\0", 10);
    file += header;
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    ASSERT_TRUE(WriteFile(dir_ / name, file).ok());
  }
  void WriteSafetensors(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<artifact::TensorSpec> specs;
    for (const std::string& tensor : tensors) specs.push_back({tensor, DType::kF32, {1, 2}});
    auto writer = artifact::SafetensorsWriter::Create(dir_ / name, specs);
    ASSERT_TRUE(writer.ok());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<float> row = {static_cast<float>(i), 0.5F};
      ASSERT_TRUE(writer->Append(std::as_bytes(std::span(row))).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }

  const std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / ("prompt_tables_" + std::to_string(getpid()));
  PromptTableDir tables_{dir_};
};

TEST_F(PromptTableDirTest, ReadsWhatNumpyAndPeftWrite) {
  WriteNpy("a.npy", 2, 2, {1, 2, 3, 4});
  WriteSafetensors("b.safetensors", {"other", "prompt_embeddings"});
  WriteSafetensors("c.safetensors", {"only"});
  const auto a = tables_.Get("a");
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  EXPECT_EQ(a->table->num_rows, 2);
  EXPECT_THAT(a->table->values, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(a->digest.size(), 32U);
  EXPECT_THAT(tables_.Get("b")->table->values, ElementsAre(1, 0.5F));
  EXPECT_THAT(tables_.Get("c")->table->values, ElementsAre(0, 0.5F));
  EXPECT_EQ(tables_.kept_bytes(), 8 * sizeof(float));
}

TEST_F(PromptTableDirTest, AFileIsReadOnceAndAgainWhenItChanges) {
  WriteNpy("a.npy", 1, 2, {1, 2});
  const auto first = tables_.Get("a");
  EXPECT_EQ(tables_.Get("a")->table, first->table);
  WriteNpy("a.npy", 1, 2, {1, 3});
  const auto second = tables_.Get("a");
  EXPECT_THAT(second->table->values, ElementsAre(1, 3));
  EXPECT_NE(second->digest, first->digest);
  EXPECT_THAT(first->table->values, ElementsAre(1, 2)) << "who has the old one keeps it";
  std::filesystem::remove(dir_ / "a.npy");
  EXPECT_FALSE(tables_.Get("a").ok());
}

TEST_F(PromptTableDirTest, SaysWhetherAFileIsToBeRead) {
  EXPECT_FALSE(tables_.HasToRead("a")) << "there is none";
  WriteNpy("a.npy", 1, 2, {1, 2});
  EXPECT_TRUE(tables_.HasToRead("a"));
  ASSERT_TRUE(tables_.Get("a").ok());
  EXPECT_FALSE(tables_.HasToRead("a"));
  WriteNpy("a.npy", 2, 2, {1, 2, 3, 4});
  EXPECT_TRUE(tables_.HasToRead("a")) << "it has changed";
  EXPECT_FALSE(tables_.HasToRead("../a"));
}

TEST_F(PromptTableDirTest, NamesLeadNowhereElse) {
  WriteNpy("a.npy", 1, 2, {1, 2});
  for (const char* name : {"", "../a", "/etc/passwd", ".a", "a/b", "a\n", "\xc3\xa4"}) {
    const Status status = tables_.Get(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("prompt_task: got a name of other characters")) << name;
  }
  EXPECT_FALSE(tables_.Get(std::string(129, 'a')).ok());
  EXPECT_EQ(tables_.Get("b").status().message(),
            "prompt_task: got 'b', the server has neither b.npy nor b.safetensors");
}

TEST_F(PromptTableDirTest, WhatIsNoTableIsNamedWithoutItsDirectory) {
  ASSERT_TRUE(WriteFile(dir_ / "text.npy", "hello").ok());
  WriteNpy("vector.npy", 1, 0, {});
  WriteSafetensors("two.safetensors", {"x", "y"});
  for (const auto& [name, message] :
       {std::pair{"text", "prompt_task: text.npy: is no .npy file"},
        {"vector", "prompt_task: vector.npy: got float32 [1, 0], must be"},
        {"two", "prompt_task: two.safetensors: has 2 tensors, none is 'prompt_embeddings'"}}) {
    const Status status = tables_.Get(name).status();
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_THAT(status.message(), testing::Not(HasSubstr(dir_.string())));
  }
  EXPECT_FALSE(PromptTableDir::Open(dir_ / "text.npy").ok());
}

}  // namespace
}  // namespace inflight::serving
