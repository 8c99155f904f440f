// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace inflight::config {
namespace {

struct Options {
  int port = 8000;
  bool metrics = true;
  double fraction = 0.9;
  float penalty = 1;
  std::chrono::milliseconds timeout{30};
  std::optional<int> batch;
  std::string policy = "fair";
  std::vector<std::string> dirs;
  std::vector<WithoutEffect> without_effect;
};

Schema<Options> MakeSchema() {
  Schema<Options> schema;
  schema.Section("Network");
  schema.Add(
      "http_port", [](Options& o) -> auto& { return o.port; }, "Port.", Range(0, 65535));
  schema.Add(
      "allow_metrics", [](Options& o) -> auto& { return o.metrics; }, "Metrics.");
  schema.Add(
      "timeout_ms", [](Options& o) -> auto& { return o.timeout; }, "Milliseconds.",
      Range(1, 60000));
  schema.Section("Memory");
  schema.Add(
      "fraction", [](Options& o) -> auto& { return o.fraction; }, "Fraction.", Range(0, 1));
  schema.Add("penalty", [](Options& o) -> auto& { return o.penalty; }, "Penalty.",
             {.min = 0, .excludes_min = true});
  schema.Add(
      "max_batch_size", [](Options& o) -> auto& { return o.batch; }, "Batch.", AtLeast(1));
  schema.Add(
      "policy", [](Options& o) -> auto& { return o.policy; }, "Policy.", OneOf({"fair", "fast"}));
  schema.Add(
      "model_repository", [](Options& o) -> auto& { return o.dirs; }, "Folders.");
  schema.Alias("model_store", "model_repository");
  schema.Refuse("model_control_mode", "only mode none is supported", "none");
  return schema;
}

TEST(SchemaTest, SetsEveryTypeByFlagOrKey) {
  const Schema<Options> schema = MakeSchema();
  Options options;
  EXPECT_TRUE(schema.Set(options, "http-port", "0").ok());
  EXPECT_TRUE(schema.Set(options, "allow_metrics", "OFF").ok());
  EXPECT_TRUE(schema.Set(options, "fraction", "0.5").ok());
  EXPECT_TRUE(schema.Set(options, "timeout-ms", "250").ok());
  EXPECT_TRUE(schema.Set(options, "max-batch-size", "7").ok());
  EXPECT_TRUE(schema.Set(options, "policy", "fast").ok());
  EXPECT_TRUE(schema.Set(options, "model-store", "a").ok());
  EXPECT_TRUE(schema.Set(options, "model-repository", "b").ok());
  EXPECT_EQ(options.port, 0);
  EXPECT_FALSE(options.metrics);
  EXPECT_EQ(options.fraction, 0.5);
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(options.batch, 7);
  EXPECT_EQ(options.policy, "fast");
  EXPECT_EQ(options.dirs, (std::vector<std::string>{"a", "b"}));
}

TEST(SchemaTest, AnOptionGetsItsDefaultAgain) {
  const Schema<Options> schema = MakeSchema();
  Options options;
  ASSERT_TRUE(schema.Set(options, "http_port", "9000").ok());
  ASSERT_TRUE(schema.Set(options, "fraction", "0.5").ok());
  EXPECT_TRUE(schema.Reset(options, "http-port").ok());
  EXPECT_EQ(options.port, Options().port);
  EXPECT_EQ(options.fraction, 0.5);
  EXPECT_EQ(schema.Reset(options, "fractoin").message(),
            "unknown option 'fractoin'; did you mean 'fraction'?");
}

TEST(SchemaTest, NamesThatAreTooLongHaveNoNearest) {
  const std::string name(64, 'a');
  EXPECT_EQ(Nearest(name, {name}), name);
  EXPECT_EQ(Nearest(name + "a", {name}), std::nullopt);
}

TEST(SchemaTest, TextIsWrappedAtBlanksAlone) {
  EXPECT_EQ(Wrapped("", 10, 2), "");
  EXPECT_EQ(Wrapped("one two three", 10, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("one two", 9, 2), "one two");
  EXPECT_EQ(Wrapped("one two", 8, 2), "one\n  two");
  EXPECT_EQ(Wrapped("averylongword b", 5, 2), "averylongword\n  b");
}

TEST(SchemaTest, HelpOfCommonOptionsLeavesOutTheOthers) {
  Schema<Options> schema = MakeSchema();
  EXPECT_EQ(ToHelp(schema.options(), /*only_common=*/true), "");
  schema.Common({"fraction"});
  EXPECT_EQ(ToHelp(schema.options(), /*only_common=*/true),
            "  --fraction NUM                  Fraction. (default 0.9; 0 to 1)\n");
  EXPECT_NE(ToHelp(schema.options()).find("--http-port"), std::string::npos);
}

TEST(SchemaTest, ErrorsNameOptionValueAndBound) {
  const Schema<Options> schema = MakeSchema();
  Options options;
  EXPECT_EQ(schema.Set(options, "http-port", "70000").message(),
            "--http-port: got '70000', needs an integer 0 to 65535");
  EXPECT_EQ(schema.Set(options, "http-port", "80x").message(),
            "--http-port: got '80x', needs an integer 0 to 65535");
  EXPECT_EQ(schema.Set(options, "max-batch-size", "99999999999").message(),
            "--max-batch-size: got '99999999999', needs an integer 1 to 2147483647");
  EXPECT_EQ(schema.Set(options, "timeout-ms", "0").message(),
            "--timeout-ms: got '0', needs an integer 1 to 60000");
  EXPECT_EQ(schema.Set(options, "fraction", "nan").message(),
            "--fraction: got 'nan', needs a number");
  EXPECT_EQ(schema.Set(options, "penalty", "0").message(),
            "--penalty: got '0', needs a number above 0");
  EXPECT_TRUE(schema.Set(options, "penalty", "0.1").ok());
  EXPECT_EQ(schema.Set(options, "policy", "slow").message(),
            "--policy: got 'slow', needs one of fair, fast");
  EXPECT_EQ(schema.Set(options, "allow-metrics", "yes").message(),
            "--allow-metrics: got 'yes', needs true, on, enable, 1, false, off, disable or 0");
}

TEST(SchemaTest, UnknownNameSuggestsTheNearest) {
  Options options;
  EXPECT_EQ(MakeSchema().Set(options, "htp-port", "1").message(),
            "unknown option 'htp-port'; did you mean 'http_port'?");
  EXPECT_EQ(MakeSchema().Set(options, "zzz", "1").message(), "unknown option 'zzz'");
}

TEST(SchemaTest, RefusedOptionSaysWhyUnlessItAsksForNothing) {
  Options options;
  EXPECT_TRUE(MakeSchema().Set(options, "model-control-mode", "none").ok());
  const Status status = MakeSchema().Set(options, "model-control-mode", "poll");
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "--model-control-mode: got 'poll'; only mode none is supported");
}

TEST(SchemaTest, SwitchPositionsHaveSeveralWords) {
  Schema<Options> schema = MakeSchema();
  Options options;
  EXPECT_TRUE(schema.Set(options, "allow_metrics", "disable").ok());
  EXPECT_FALSE(options.metrics);
  EXPECT_TRUE(schema.Set(options, "allow_metrics", "enable").ok());
  EXPECT_TRUE(options.metrics);
  schema.Refuse("sharding", "is not supported", "disable");
  EXPECT_TRUE(schema.Set(options, "sharding", "false").ok());
  EXPECT_FALSE(schema.Set(options, "sharding", "enable").ok());
  EXPECT_FALSE(schema.Set(options, "sharding", "disabled").ok());
}

TEST(SchemaTest, OptionsWithoutEffectAreAcceptedWithAWarning) {
  Schema<Options> schema = MakeSchema();
  schema.Note("gemm_plugin", "there are no plugins");
  Options options;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(schema.Set(options, "gemm-plugin", "float16").ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("option has no effect option=--gemm-plugin value=float16 "
                     "reason=\\\"there are no plugins\\\""),
            std::string::npos)
      << log;
  EXPECT_EQ(ToHelp(schema.options()).find("gemm"), std::string::npos);
  EXPECT_NE(ToMarkdown(schema.options()).find("No effect: there are no plugins"),
            std::string::npos);
}

TEST(SchemaTest, OptionsWithoutEffectHaveATypeAndMayBeKeptForLater) {
  Schema<Options> schema = MakeSchema();
  schema.Note<int>("pool_threads", "there is no pool", AtLeast(1), &Options::without_effect);
  Options options;
  testing::internal::CaptureStderr();
  const Status refused = schema.Set(options, "pool_threads", "0");
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("--pool-threads: got '0', needs an integer"), std::string::npos);
  EXPECT_TRUE(options.without_effect.empty());
  EXPECT_TRUE(schema.Set(options, "pool_threads", "4").ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(options.without_effect.size(), 1u);
  EXPECT_EQ(options.without_effect[0].flag, "--pool-threads");
  EXPECT_EQ(options.without_effect[0].value, "4");
  EXPECT_EQ(options.without_effect[0].reason, "there is no pool");
}

TEST(SchemaTest, AnOptionIsFoundByEachOfItsNames) {
  const Schema<Options> schema = MakeSchema();
  for (const char* name : {"http_port", "http-port", "model_repository", "model-store"})
    ASSERT_NE(schema.InfoOf(name), nullptr) << name;
  EXPECT_EQ(schema.InfoOf("http-port")->name, "http_port");
  EXPECT_EQ(schema.InfoOf("model-store")->name, "model_repository");
  EXPECT_EQ(schema.InfoOf("http-ports"), nullptr);
}

TEST(SchemaTest, AliasesAreDocumented) {
  const std::string markdown = ToMarkdown(MakeSchema().options());
  EXPECT_NE(markdown.find("also --model-store"), std::string::npos);
}

TEST(SchemaTest, HelpAndDocumentsComeFromTheDeclarations) {
  const std::string help = ToHelp(MakeSchema().options());
  EXPECT_NE(help.find("--http-port INT"), std::string::npos);
  EXPECT_NE(help.find("(default 8000; 0 to 65535)"), std::string::npos);
  EXPECT_NE(help.find("(default 30; 1 to 60000)"), std::string::npos);
  EXPECT_EQ(help.find("model-control-mode"), std::string::npos);
  const std::string markdown = ToMarkdown(MakeSchema().options());
  EXPECT_NE(markdown.find("| `--policy` | `policy` | text | default fair; fair, fast | Policy. |"),
            std::string::npos);
  EXPECT_NE(markdown.find("Refused: only mode none is supported"), std::string::npos);
}

TEST(OptionFileTest, GivesEntriesForTheSchema) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("inflight_schema_test_" + std::to_string(getpid()) + ".json");
  ASSERT_TRUE(
      WriteFile(path, R"({"http_port": 9, "model_repository": ["a", "b"], "allow_metrics": false})")
          .ok());
  const auto entries = ReadOptionFile(path);
  ASSERT_TRUE(entries.ok());
  Options options;
  for (const auto& [key, value] : *entries) EXPECT_TRUE(MakeSchema().Set(options, key, value).ok());
  EXPECT_EQ(options.port, 9);
  EXPECT_FALSE(options.metrics);
  EXPECT_EQ(options.dirs.size(), 2U);
  ASSERT_TRUE(WriteFile(path, R"({"http_port": {"a": 1}})").ok());
  EXPECT_EQ(ReadOptionFile(path).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFile(path, "[").ok());
  EXPECT_EQ(ReadOptionFile(path).status().code(), StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace inflight::config
