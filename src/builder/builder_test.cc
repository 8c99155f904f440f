// SPDX-License-Identifier: Apache-2.0
#include "builder/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "artifact/engine_file.h"
#include "artifact/tensor_set.h"
#include "builder/model_files.h"
#include "builder/test_models.h"
#include "model/weight_slots.h"

namespace inflight::builder {
namespace {

using testing::HasSubstr;

class BuilderTest : public testing::Test {
 protected:
  BuilderTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("builder_" + std::to_string(getpid()) + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~BuilderTest() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path hf() const { return dir_ / "hf"; }
  std::filesystem::path checkpoint() const { return dir_ / "checkpoint"; }
  std::filesystem::path engine() const { return dir_ / "engine"; }

  Status ConvertTo(const std::string& dtype) {
    return Convert({.model_dir = hf(), .output_dir = checkpoint(), .dtype = dtype});
  }
  Status BuildEngine() {
    return Build({.checkpoint_dir = hf(), .output_dir = engine(), .limits = {.max_seq_len = 16}});
  }
  std::vector<float> CheckpointTensor(const std::string& name, const Shape& shape) {
    const auto set = artifact::TensorSet::OpenFile(checkpoint() / "rank0.safetensors");
    EXPECT_TRUE(set.ok()) << set.status().ToString();
    const artifact::StoredTensor* tensor = set->Find(name);
    if (tensor == nullptr) {
      ADD_FAILURE() << name << " is missing";
      return {};
    }
    EXPECT_EQ(tensor->shape, shape) << name;
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
  }
  nlohmann::json ReadJson(const std::filesystem::path& path) {
    return nlohmann::json::parse(*ReadFile(path));
  }

  std::filesystem::path dir_;
  std::unique_ptr<Device> device_ = Device::Cpu(2);
};

TEST_F(BuilderTest, ConvertStacksQueryKeyAndValueRows) {
  const TestModel model = TinyLlama();
  model.Write(hf());
  ASSERT_TRUE(ConvertTo("float32").ok());
  const auto qkv = CheckpointTensor("transformer.layers.0.attention.qkv.weight", {32, 16});
  const auto part = [&](const char* name) {
    return model.Values(std::string("model.layers.0.self_attn.") + name + "_proj.weight");
  };
  EXPECT_EQ(std::vector<float>(qkv.begin(), qkv.begin() + 256), part("q"));
  EXPECT_EQ(std::vector<float>(qkv.begin() + 256, qkv.begin() + 384), part("k"));
  EXPECT_EQ(std::vector<float>(qkv.begin() + 384, qkv.end()), part("v"));
}

// docs/reference/artifacts.md: mlp.fc is Hugging Face's gate_proj, mlp.gate its up_proj.
TEST_F(BuilderTest, ConvertCrossesTheNamesOfTheGatedBranches) {
  const TestModel model = TinyLlama();
  model.Write(hf());
  ASSERT_TRUE(ConvertTo("float32").ok());
  EXPECT_EQ(CheckpointTensor("transformer.layers.0.mlp.fc.weight", {24, 16}),
            model.Values("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_EQ(CheckpointTensor("transformer.layers.0.mlp.gate.weight", {24, 16}),
            model.Values("model.layers.0.mlp.up_proj.weight"));
  EXPECT_EQ(CheckpointTensor("lm_head.weight", {10, 16}), model.Values("lm_head.weight"));
}

TEST_F(BuilderTest, ConvertTransposesConv1d) {
  const TestModel model = TinyGpt2();
  model.Write(hf());
  ASSERT_TRUE(ConvertTo("float32").ok());
  const auto stored = model.Values("transformer.h.0.mlp.c_fc.weight");  // [8, 32]
  const auto fc = CheckpointTensor("transformer.layers.0.mlp.fc.weight", {32, 8});
  for (size_t out = 0; out < 32; ++out)
    for (size_t in = 0; in < 8; ++in) ASSERT_EQ(fc[out * 8 + in], stored[in * 32 + out]);
  EXPECT_EQ(CheckpointTensor("transformer.layers.0.mlp.fc.bias", {32}),
            model.Values("transformer.h.0.mlp.c_fc.bias"));
  EXPECT_EQ(CheckpointTensor("transformer.position_embedding.weight", {20, 8}),
            model.Values("transformer.wpe.weight"));
}

TEST_F(BuilderTest, Gpt2NamesMayLackTheirPrefixAndCarryMasks) {
  TestModel model = TinyGpt2();
  for (auto& tensor : model.tensors) tensor.name = tensor.name.substr(strlen("transformer."));
  model.tensors.push_back({"h.0.attn.bias", DType::kF32, {1, 1, 20, 20}});
  model.tensors.push_back({"h.0.attn.masked_bias", DType::kF32, {}});
  model.Write(hf());
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ConvertTo("float32").ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(BuilderTest, UnexpectedTensorsAreAWarning) {
  TestModel model = TinyLlama();
  model.tensors.push_back({"model.layers.0.extra", DType::kF32, {3}});
  model.Write(hf());
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ConvertTo("float32").ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("first=model.layers.0.extra"));
}

TEST_F(BuilderTest, MissingTensorsAreListedInOneMessage) {
  TestModel model = TinyLlama();
  model.Remove("model.layers.0.self_attn.k_proj.weight");
  model.Remove("model.norm.weight");
  model.Write(hf());
  EXPECT_THAT(ConvertTo("float32").message(),
              HasSubstr("Required but not provided tensors:{\"model.layers.0.self_attn.k_proj."
                        "weight\", \"model.norm.weight\"}"));
}

TEST_F(BuilderTest, WrongShapesSayWhatWasExpectedAndFound) {
  TestModel model = TinyLlama();
  model.Tensor("model.layers.0.self_attn.k_proj.weight").shape = {16, 8};
  model.Write(hf());
  EXPECT_THAT(ConvertTo("float32").message(),
              HasSubstr("model.layers.0.self_attn.k_proj.weight: expected shape [8, 16], found "
                        "[16, 8]"));
}

TEST_F(BuilderTest, IntegerWeightsAreRefused) {
  TestModel model = TinyLlama();
  model.Tensor("model.norm.weight").dtype = DType::kI32;
  model.Write(hf());
  EXPECT_THAT(ConvertTo("float32").message(), HasSubstr("model.norm.weight: dtype int32"));
}

TEST_F(BuilderTest, AutoDtypeFollowsTheRuleOfTheSpec) {
  TestModel model = TinyLlama();
  const auto converted_dtype = [&](const char* stored) {
    model.config["torch_dtype"] = stored;
    model.Write(hf());
    EXPECT_TRUE(ConvertTo("auto").ok());
    return ReadJson(checkpoint() / "config.json")["dtype"].get<std::string>();
  };
  EXPECT_EQ(converted_dtype("float32"), "float16");
  EXPECT_EQ(converted_dtype("bfloat16"), "bfloat16");
  EXPECT_EQ(converted_dtype("float16"), "float16");
  EXPECT_THAT(ConvertTo("int4").message(), HasSubstr("dtype: got 'int4'"));
}

TEST_F(BuilderTest, InputIsNeverOverwritten) {
  TinyLlama().Write(hf());
  EXPECT_THAT(Convert({.model_dir = hf(), .output_dir = hf() / "."}).message(),
              HasSubstr("choose another directory"));
  EXPECT_FALSE(Build({.checkpoint_dir = hf(), .output_dir = hf(), .limits = {}}).ok());
}

TEST_F(BuilderTest, TiedModelsStoreOneTable) {
  TestModel model = TinyLlama();
  model.config["tie_word_embeddings"] = true;
  model.Write(hf());  // with the superfluous lm_head.weight that some files carry
  ASSERT_TRUE(ConvertTo("float32").ok());
  const auto set = artifact::TensorSet::OpenFile(checkpoint() / "rank0.safetensors");
  EXPECT_EQ(set->Find("lm_head.weight"), nullptr);
  const auto opened = Open(checkpoint(), *device_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->weights.lm_head.data, (*opened)->weights.vocab_embedding.data);
  EXPECT_NE((*opened)->weights.lm_head.data, nullptr);

  // Without lm_head.weight a model is tied whatever its configuration says.
  model.Remove("lm_head.weight");
  model.config["tie_word_embeddings"] = false;
  model.Write(hf());
  EXPECT_TRUE((*Open(hf(), *device_))->config.tied_embeddings);
}

TEST_F(BuilderTest, EndIdsComeFromGenerationConfigFirst) {
  TinyLlama().Write(hf());
  EXPECT_EQ((*Open(hf(), *device_))->config.end_ids, std::vector<TokenId>{2});
  ASSERT_TRUE(
      WriteFile(hf() / "generation_config.json", R"({"eos_token_id": [3, 4], "pad_token_id": 0})")
          .ok());
  ASSERT_TRUE(ConvertTo("float32").ok());
  const auto opened = Open(checkpoint(), *device_);
  EXPECT_EQ((*opened)->config.end_ids, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ((*opened)->config.pad_id, 0);
}

TEST_F(BuilderTest, TokenizerFilesTravelAlong) {
  TinyLlama().Write(hf());
  const auto names = {"tokenizer.json",      "tokenizer_config.json",
                      "chat_template.jinja", "special_tokens_map.json",
                      "tokenizer.model",     "vocab.json",
                      "merges.txt",          "added_tokens.json",
                      "chat_template.json",  "additional_chat_templates/tool_use.jinja"};
  std::filesystem::create_directories(hf() / "additional_chat_templates");
  for (const char* name : names) ASSERT_TRUE(WriteFile(hf() / name, name).ok());
  ASSERT_TRUE(WriteFile(hf() / "generation_config.json", "{}").ok());
  ASSERT_TRUE(ConvertTo("float16").ok());
  ASSERT_TRUE(Build({.checkpoint_dir = checkpoint(), .output_dir = engine(), .limits = {}}).ok());
  for (const char* name : names) EXPECT_EQ(*ReadFile(engine() / name), name);
  EXPECT_EQ(*ReadFile(engine() / "generation_config.json"), "{}");
  const auto opened = Open(engine(), *device_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->tokenizer_dir, engine());
}

TEST_F(BuilderTest, SentencePieceModelsTravelAlong) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(WriteFile(hf() / "tokenizer.model", "pieces").ok());
  ASSERT_TRUE(ConvertTo("float16").ok());
  ASSERT_TRUE(Build({.checkpoint_dir = checkpoint(), .output_dir = engine(), .limits = {}}).ok());
  EXPECT_EQ(*ReadFile(engine() / "tokenizer.model"), "pieces");
  const auto opened = Open(engine(), *device_);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->tokenizer_dir, engine());
}

TEST_F(BuilderTest, FilesOfRanksTravelAlong) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(WriteFile(hf() / "qwen.tiktoken", "ranks").ok());
  ASSERT_TRUE(ConvertTo("float16").ok());
  ASSERT_TRUE(Build({.checkpoint_dir = checkpoint(), .output_dir = engine(), .limits = {}}).ok());
  EXPECT_EQ(*ReadFile(engine() / "qwen.tiktoken"), "ranks");
  EXPECT_EQ((*Open(engine(), *device_))->tokenizer_dir, engine());
  ASSERT_TRUE(RemoveTokenizerFiles(engine()).ok());
  EXPECT_EQ(TokenizerDir(engine()), "");
}

TEST_F(BuilderTest, ATokenizerInAFolderIsTakenWhereThereIsNoOther) {
  TinyLlama().Write(hf());
  std::filesystem::create_directories(hf() / "original");
  ASSERT_TRUE(WriteFile(hf() / "original/tokenizer.model", "ranks").ok());
  EXPECT_EQ(TokenizerDir(hf()), hf());
  ASSERT_TRUE(ConvertTo("float16").ok());
  EXPECT_EQ(*ReadFile(checkpoint() / "tokenizer.model"), "ranks");
  ASSERT_TRUE(WriteFile(hf() / "spiece.model", "pieces").ok());
  ASSERT_TRUE(RemoveTokenizerFiles(checkpoint()).ok());
  ASSERT_TRUE(CopyModelFiles(hf(), checkpoint()).ok());
  EXPECT_FALSE(FileExists(checkpoint() / "tokenizer.model"));
}

// Checkpoints of upstream's converters come without a tokenizer.
TEST_F(BuilderTest, TheTokenizerMayComeFromElsewhere) {
  TinyLlama().Write(hf());
  const std::filesystem::path tokenizer = dir_ / "tokenizer";
  BuildOptions options{.checkpoint_dir = hf(), .output_dir = engine(), .limits = {}};
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Build(options).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the engine has no tokenizer"));
  options.tokenizer_dir = tokenizer;
  EXPECT_THAT(Build(options).message(), HasSubstr("tokenizer_dir: got " + tokenizer.string()));
  std::filesystem::create_directories(tokenizer);
  ASSERT_TRUE(WriteFile(tokenizer / "tokenizer.model", "x").ok());
  ASSERT_TRUE(Build(options).ok());
  EXPECT_EQ((*Open(engine(), *device_))->tokenizer_dir, engine());
}

// A tokenizer.json left over would be read before the tokenizer.model that was asked for.
TEST_F(BuilderTest, TheTokenizerThatIsNamedIsTheOnlyOne) {
  TinyLlama().Write(hf());
  for (const char* name : {"tokenizer.json", "chat_template.jinja"})
    ASSERT_TRUE(WriteFile(hf() / name, "the checkpoint's").ok());
  ASSERT_TRUE(WriteFile(hf() / "generation_config.json", "{}").ok());
  const std::filesystem::path tokenizer = dir_ / "tokenizer";
  std::filesystem::create_directories(tokenizer);
  ASSERT_TRUE(WriteFile(tokenizer / "tokenizer.model", "x").ok());
  BuildOptions options{.checkpoint_dir = hf(), .output_dir = engine(), .limits = {}};
  options.tokenizer_dir = tokenizer;
  for (const bool is_built_before : {false, true}) {
    if (is_built_before) {
      ASSERT_TRUE(BuildEngine().ok());
    }
    ASSERT_TRUE(Build(options).ok());
    EXPECT_FALSE(FileExists(engine() / "tokenizer.json")) << is_built_before;
    EXPECT_FALSE(FileExists(engine() / "chat_template.jinja")) << is_built_before;
    EXPECT_EQ(*ReadFile(engine() / "tokenizer.model"), "x");
    EXPECT_EQ(*ReadFile(engine() / "generation_config.json"), "{}");
  }
  options.tokenizer_dir = engine();  // that is there already
  const Status again = Build(options);
  EXPECT_TRUE(again.ok()) << again.ToString();
  EXPECT_EQ(*ReadFile(engine() / "tokenizer.model"), "x");
}

TEST_F(BuilderTest, DryRunChecksAndWritesNothing) {
  TinyGpt2().Write(hf());
  BuildOptions options{.checkpoint_dir = hf(), .output_dir = engine(), .dry_run = true};
  EXPECT_TRUE(Build(options).ok());
  EXPECT_FALSE(FileExists(engine()));
  options.limits.max_seq_len = 21;
  EXPECT_FALSE(Build(options).ok());
}

TEST_F(BuilderTest, DetectSaysWhatADirectoryIs) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(ConvertTo("float32").ok());
  ASSERT_TRUE(BuildEngine().ok());
  EXPECT_EQ(*Detect(hf()), SourceKind::kHuggingFace);
  EXPECT_EQ(*Detect(checkpoint()), SourceKind::kCheckpoint);
  EXPECT_EQ(*Detect(engine()), SourceKind::kEngine);
  EXPECT_EQ(Detect(dir_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Detect(dir_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Detect(hf() / "config.json").status().message(),
              HasSubstr("config.json: is a file;"));
  ASSERT_TRUE(WriteFile(dir_ / "config.json", "{}").ok());
  EXPECT_EQ(Detect(dir_).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFile(dir_ / "config.json", R"({"builder_config": {}})").ok());
  EXPECT_THAT(Detect(dir_).status().message(), HasSubstr("before 0.8"));
  std::filesystem::remove(dir_ / "config.json");
  ASSERT_TRUE(WriteFile(dir_ / "config.ini", "[gpt]").ok());
  EXPECT_THAT(Detect(dir_).status().message(), HasSubstr("convert the Hugging Face model again"));
  EXPECT_THAT(Convert({.model_dir = engine(), .output_dir = dir_ / "x"}).message(),
              HasSubstr("an engine; a Hugging Face directory or a GGUF file is needed"));
}

TEST_F(BuilderTest, EngineConfigHasUpstreamsKeys) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(BuildEngine().ok());
  const nlohmann::json config = ReadJson(engine() / "config.json");
  EXPECT_TRUE(config["version"].is_string());
  EXPECT_EQ(config["pretrained_config"]["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(config["pretrained_config"]["num_key_value_heads"], 1);
  EXPECT_EQ(config["pretrained_config"]["mapping"]["tp_size"], 1);
  EXPECT_EQ(config["build_config"]["max_seq_len"], 16);
  EXPECT_EQ(config["build_config"]["plugin_config"]["paged_kv_cache"], true);
}

TEST_F(BuilderTest, DescribeSaysWhatOpenDoes) {
  TinyGpt2().Write(hf());
  ASSERT_TRUE(ConvertTo("bfloat16").ok());
  ASSERT_TRUE(BuildEngine().ok());
  for (const auto& dir : {hf(), checkpoint(), engine()}) {
    const auto description = Describe(dir);
    ASSERT_TRUE(description.ok()) << description.status().ToString();
    const uint64_t free_bytes = device_->ledger().free_bytes();
    const auto opened = Open(dir, *device_);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_EQ(free_bytes - device_->ledger().free_bytes(), description->weight_bytes);
    EXPECT_EQ(description->kind, *Detect(dir));
    EXPECT_EQ(description->weight_bytes, (*opened)->weight_bytes);
    EXPECT_EQ(description->config.dtype, (*opened)->config.dtype);
    EXPECT_EQ(description->limits.max_seq_len, (*opened)->limits.max_seq_len);
  }
}

TEST_F(BuilderTest, OptionsOfABuiltEngineCannotChange) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(BuildEngine().ok());
  EXPECT_TRUE(Open(engine(), *device_, {.dtype = DType::kF32, .limits = {}}).ok());
  const Status dtype = Open(engine(), *device_, {.dtype = DType::kF16, .limits = {}}).status();
  EXPECT_EQ(dtype.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(dtype.message(), HasSubstr("inflight build"));
  EXPECT_EQ(
      Open(engine(), *device_, {.dtype = {}, .limits = model::EngineLimits{}}).status().code(),
      StatusCode::kFailedPrecondition);
}

TEST_F(BuilderTest, LimitsBeyondLearnedPositionsAreRefused) {
  TinyGpt2().Write(hf());
  EXPECT_THAT(Build({.checkpoint_dir = hf(), .output_dir = engine(), .limits = {.max_seq_len = 21}})
                  .message(),
              HasSubstr("max_seq_len: got 21, the model has 20 learned positions"));
}

TEST_F(BuilderTest, DamagedEnginesAreStatusesThatNameTheFile) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(BuildEngine().ok());
  const auto path = engine() / "rank0.engine";
  const std::string good = *ReadFile(path);
  const auto error = [&](std::string bytes) {
    EXPECT_TRUE(WriteFile(path, bytes).ok());
    const Status status = Open(engine(), *device_).status();
    EXPECT_THAT(status.message(), HasSubstr("rank0.engine"));
    return status;
  };
  EXPECT_EQ(error(good.substr(0, good.size() / 2)).code(), StatusCode::kDataLoss);
  EXPECT_EQ(error("").code(), StatusCode::kDataLoss);
  std::string changed = good;
  changed[changed.size() - 200] ^= 1;
  EXPECT_THAT(error(changed).message(), HasSubstr("checksum"));
  changed = good;
  changed[16] = 9;
  EXPECT_EQ(error(changed).code(), StatusCode::kFailedPrecondition);
  std::filesystem::remove(path);
  EXPECT_EQ(Open(engine(), *device_).status().code(), StatusCode::kNotFound);
}

TEST_F(BuilderTest, EnginesWhoseTensorsDoNotFitTheirConfigAreRefused) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(BuildEngine().ok());
  const nlohmann::json good = ReadJson(engine() / "config.json");
  const auto error = [&](const char* field, nlohmann::json value) {
    nlohmann::json config = good;
    config["pretrained_config"][field] = std::move(value);
    EXPECT_TRUE(WriteFile(engine() / "config.json", config.dump()).ok());
    return Open(engine(), *device_).status().message();
  };
  EXPECT_THAT(error("num_hidden_layers", 2), HasSubstr("Required but not provided tensors:"));
  EXPECT_THAT(error("vocab_size", 11),
              HasSubstr("transformer.vocab_embedding.weight: expected float32 [11, 16] row_major"));
  EXPECT_THAT(error("dtype", "bfloat16"), HasSubstr("expected bfloat16"));
  EXPECT_THAT(error("hidden_size", 1 << 30), HasSubstr("hidden_size"));
  nlohmann::json old = good;
  old.erase("version");
  ASSERT_TRUE(WriteFile(engine() / "config.json", old.dump()).ok());
  EXPECT_THAT(Open(engine(), *device_).status().message(), HasSubstr("version: is missing"));
}

TEST_F(BuilderTest, EnginesOfALaterFormatNameTheReleaseToRun) {
  TinyLlama().Write(hf());
  ASSERT_TRUE(BuildEngine().ok());
  nlohmann::json config = ReadJson(engine() / "config.json");
  EXPECT_EQ(config["format"], 1);
  const auto status_of = [&](const nlohmann::json& format) {
    config["format"] = format;
    EXPECT_TRUE(WriteFile(engine() / "config.json", config.dump()).ok());
    return Open(engine(), *device_).status();
  };
  EXPECT_TRUE(status_of(1).ok());
  config["version"] = "7.1.0";
  EXPECT_EQ(status_of(2).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status_of(2).message(),
              testing::AllOf(HasSubstr("config.json: format: got 2, "), HasSubstr("up to 1"),
                             HasSubstr("the engine, 7.1.0, or a later"),
                             HasSubstr("rebuild it with `inflight build")));
  EXPECT_THAT(status_of("2").message(), HasSubstr("format: "));
  EXPECT_THAT(status_of(0).message(), HasSubstr("format: "));
  config.erase("format");
  ASSERT_TRUE(WriteFile(engine() / "config.json", config.dump()).ok());
  EXPECT_TRUE(Open(engine(), *device_).ok()) << "without the key it is format 1";
}

TEST_F(BuilderTest, ProgressRisesToOne) {
  TinyGpt2().Write(hf());
  std::vector<double> fractions;
  const Progress progress = [&](double fraction, std::string_view what) {
    EXPECT_FALSE(what.empty());
    if (!fractions.empty()) {
      EXPECT_GE(fraction, fractions.back());
    }
    fractions.push_back(fraction);
  };
  const auto check = [&] {
    ASSERT_GE(fractions.size(), 2U);
    EXPECT_EQ(fractions.back(), 1.0);
    fractions.clear();
  };
  ASSERT_TRUE(
      Convert({.model_dir = hf(), .output_dir = checkpoint(), .dtype = "float32"}, progress).ok());
  check();
  ASSERT_TRUE(Build({.checkpoint_dir = hf(), .output_dir = engine(), .limits = {}}, progress).ok());
  check();
  ASSERT_TRUE(Open(hf(), *device_, {}, progress).ok());
  check();
}

TEST_F(BuilderTest, WithoutMemoryOpenIsAStatus) {
  TinyLlama().Write(hf());
  const auto small = Device::CpuWithCapacity(1, 1000);
  const Status status = Open(hf(), *small).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("weights"));
}

TEST(Random, SameSeedSameWeightsOfTheRightSpread) {
  const auto device = Device::Cpu(2);
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.dtype = DType::kBF16;
  config.vocab_size = 300;
  config.hidden_size = 72;
  config.num_layers = 2;
  config.num_heads = config.num_kv_heads = 3;
  config.head_dim = 24;
  config.intermediate_size = 100;
  config.max_position_embeddings = 64;
  const auto a = Random(config, {}, 5, *device);
  const auto b = Random(config, {}, 5, *device);
  const auto c = Random(config, {}, 6, *device);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  const auto row = [](const model::Engine& engine, int64_t r) {
    std::vector<float> values(72);
    ops::UnpackWeightRow(engine.weights.layers[1].qkv, r, values.data());
    return values;
  };
  EXPECT_EQ(row(**a, 100), row(**b, 100));
  EXPECT_NE(row(**a, 100), row(**c, 100));
  EXPECT_NE(row(**a, 100), row(**a, 101));
  double squares = 0;
  for (int64_t r = 0; r < 216; ++r)
    for (const float value : row(**a, r)) squares += double{value} * value;
  EXPECT_NEAR(squares / (216 * 72) * 72, 1.0, 0.05);  // variance 1 / width
  EXPECT_EQ((*a)->weights.layers[0].input_norm_weight.as<float>()[71], 1.0F);
}

}  // namespace
}  // namespace inflight::builder
