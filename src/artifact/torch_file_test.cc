// SPDX-License-Identifier: Apache-2.0
// Files that torch itself wrote (tests/golden/torch/make_torch.py) against the safetensors of the
// same tensors. Files that nobody should open are in tests/tools/test_torch_files.py.
#include "artifact/torch_file.h"

#include <gmock/gmock.h>

#include "artifact/safetensors.h"
#include "artifact/tensor_set.h"
#include "artifact/test_files.h"
#include "artifact/test_zip.h"
#include "base/file.h"

namespace inflight::artifact {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path DataDir() { return INFLIGHT_TORCH_DATA; }

std::string Read(const fs::path& path) {
  const auto content = ReadFile(path);
  EXPECT_TRUE(content.ok()) << content.status().ToString();
  return content.ok() ? *content : "";
}

void ExpectSame(const StoredTensor& found, const StoredTensor& expected) {
  EXPECT_EQ(found.dtype, expected.dtype) << expected.name;
  EXPECT_EQ(found.shape, expected.shape) << expected.name;
  ASSERT_EQ(found.data.size(), expected.data.size()) << expected.name;
  EXPECT_TRUE(std::equal(found.data.begin(), found.data.end(), expected.data.begin()))
      << expected.name;
}

// Every tensor of the reference; of others only those in `extra`.
void ExpectModelsEqual(const fs::path& dir, const fs::path& reference_dir,
                       const std::vector<std::string>& extra) {
  SCOPED_TRACE(dir.string());
  const auto found = TensorSet::OpenModel(dir);
  const auto expected = TensorSet::OpenModel(reference_dir);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();
  ASSERT_EQ(found->tensors().size(), expected->tensors().size() + extra.size());
  for (const StoredTensor& tensor : expected->tensors()) {
    ASSERT_NE(found->Find(tensor.name), nullptr) << tensor.name;
    ExpectSame(*found->Find(tensor.name), tensor);
  }
  for (const std::string& name : extra) EXPECT_NE(found->Find(name), nullptr) << name;
}

TEST(TorchFileTest, EveryFormGivesTheTensorsThatTorchSaved) {
  const auto expected = TensorSet::OpenFile(DataDir() / "forms/expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();
  ASSERT_EQ(expected->tensors().size(), 25U);
  for (const char* name : {"zip", "zip_protocol4", "zip_protocol5", "legacy", "legacy_protocol4"}) {
    SCOPED_TRACE(name);
    const std::string file = Read(DataDir() / "forms" / (std::string(name) + ".bin"));
    const auto parsed = ParseTorchFile(BytesOf(file), name);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    ASSERT_EQ(parsed->tensors.size(), expected->tensors().size());
    for (const StoredTensor& tensor : parsed->tensors) {
      ASSERT_NE(expected->Find(tensor.name), nullptr) << tensor.name;
      ExpectSame(tensor, *expected->Find(tensor.name));
    }
  }
}

TEST(TorchFileTest, OnlyTensorsWithGapsAreCopied) {
  const std::string file = Read(DataDir() / "forms/zip.bin");
  const auto parsed = ParseTorchFile(BytesOf(file), "zip");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::string> copied;
  for (const StoredTensor& tensor : parsed->tensors) {
    const auto* data = reinterpret_cast<const char*>(tensor.data.data());
    if (!tensor.data.empty() && (data < file.data() || data >= file.data() + file.size()))
      copied.push_back(tensor.name);
  }
  EXPECT_THAT(copied, testing::UnorderedElementsAre("transposed", "columns", "every_other",
                                                    "permuted", "row_of_one", "value"));
  EXPECT_EQ(parsed->gathered.size(), copied.size());
}

TEST(TorchFileTest, ModelsAreThoseOfTheSafetensors) {
  for (const char* form : {"zip", "sharded", "legacy"}) {
    ExpectModelsEqual(DataDir() / "llama" / form, DataDir() / "llama/safetensors", {});
    // GPT-2's head is its table; safetensors leaves such a second name out.
    ExpectModelsEqual(DataDir() / "gpt2" / form, DataDir() / "gpt2/safetensors",
                      {"lm_head.weight"});
  }
  const auto gpt2 = TensorSet::OpenModel(DataDir() / "gpt2/zip");
  ASSERT_TRUE(gpt2.ok());
  EXPECT_EQ(gpt2->Find("lm_head.weight")->data.data(),
            gpt2->Find("transformer.wte.weight")->data.data());
}

TEST(TorchFileTest, EveryTruncationIsAnError) {
  for (const char* name : {"forms/zip.bin", "forms/legacy.bin"}) {
    const std::string file = Read(DataDir() / name);
    for (size_t n = 0; n < file.size(); ++n) {
      const auto parsed = ParseTorchFile(BytesOf(file.substr(0, n)), "cut.bin");
      ASSERT_FALSE(parsed.ok()) << name << n;
      EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << parsed.status().ToString();
      EXPECT_THAT(parsed.status().message(), HasSubstr("cut.bin: "));
    }
  }
}

TEST(TorchFileTest, RefusesByNameWhatIsNoStateDictOfDenseTensors) {
  struct Case {
    const char* file;
    const char* message;
  };
  const Case cases[] = {
      {"module", "global 'torch.nn.modules.linear.Linear' is refused"},
      {"legacy_module", "global 'torch.nn.modules.linear.Linear' is refused"},
      {"optimizer", "'state': is a dict, a tensor is needed (save the model's state_dict() alone)"},
      {"training", "'model': is a dict, a tensor is needed"},
      {"number", "'epoch': is a whole number, a tensor is needed"},
      {"tensor", "holds a tensor, a state dict (names to tensors) is needed"},
      {"list", "holds a list, a state dict (names to tensors) is needed"},
      {"sparse", "global 'torch._utils._rebuild_sparse_tensor' is refused"},
      {"complex", "global 'torch.ComplexFloatStorage' is refused"},
      {"conjugate", "global 'torch.ComplexFloatStorage' is refused"},
      {"negative", "'w': is a conjugate or negative view"},
      {"float8", "global 'torch._utils._rebuild_tensor_v3' is refused"},
      {"quantized", "global 'torch._utils._rebuild_qtensor' is refused"},
      {"expanded", "'w': shape [5, 4] of strides [0, 1]: elements share memory"},
      {"overlapping", "'w': shape [4, 3] of strides [2, 1]: elements share memory"},
      {"six_dimensions", "'w': shape: 6 dimensions, at most 5 are supported"},
      {"path", "global 'pathlib.PurePosixPath' is refused"},
      {"numpy", "global 'numpy"},
      {"torchscript", "linear.py': is compressed (method 8); torch.save stores its entries"}};
  size_t num_files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(DataDir() / "refused"))
    ++num_files;
  EXPECT_EQ(num_files, std::size(cases));
  for (const Case& c : cases) {
    const std::string name = std::string(c.file) + ".bin";
    const std::string file = Read(DataDir() / "refused" / name);
    const auto parsed = ParseTorchFile(BytesOf(file), name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnimplemented) << parsed.status().ToString();
    EXPECT_THAT(parsed.status().message(),
                testing::AllOf(HasSubstr(name + ": "), HasSubstr(c.message),
                               HasSubstr("where you trust the file, load it with torch")));
  }
}

TEST(TorchFileTest, SaysWhatOtherFilesAre) {
  const auto error = [](const std::string& file) {
    return ParseTorchFile(BytesOf(file), "f").status().message();
  };
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("is a Git LFS pointer, not the weights"));
  EXPECT_THAT(error("\x80\x02N."), HasSubstr("nor the magic number of torch.save"));
  EXPECT_THAT(error(MakeTestZip({{"readme.txt", "x"}})), HasSubstr("torch.save did not write it"));
  EXPECT_THAT(error(MakeTestZip({{"a/data.pkl", "x"}, {"b/data.pkl", "x"}})),
              HasSubstr("two state dicts, 'a/data.pkl' and 'b/data.pkl'"));
  EXPECT_THAT(error(MakeTestZip({{"a/data.pkl", "\x80\x02}."}, {"a/byteorder", "big"}})),
              HasSubstr("byteorder: got 'big'"));
}

}  // namespace
}  // namespace inflight::artifact
