// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/validate_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "serving/configuration/generated_config.h"
#include "serving/configuration/model_config.h"

namespace inflight::serving {
namespace {

using ::testing::HasSubstr;

TEST(ValidateModelConfig, GeneratedConfigurationsAreValid) {
  const GeneratedConfigOptions options = {
      .model_dir = "/m", .tokenizer_dir = "/t", .max_batch_size = 4};
  for (const auto& config : {PreprocessingConfig(options), LlmConfig(options),
                             PostprocessingConfig(options), EnsembleConfig(options)}) {
    EXPECT_TRUE(ValidateModelConfig(config).ok()) << config.name();
    EXPECT_TRUE(ValidateTensors(config).ok()) << config.name();
  }
}

TEST(ValidateModelConfig, BrokenOnesAreNamed) {
  const auto error = [](const char* text) {
    return ValidateModelConfig(ParseModelConfig(text)->config).message();
  };
  EXPECT_EQ(error(R"(name: "m" backend: "b" max_batch_size: -1)"),
            "'max_batch_size' must be non-negative value for m");
  EXPECT_THAT(error(R"(name: "m")"), HasSubstr("Could not determine backend for model 'm'"));
  EXPECT_EQ(error(R"(name: "m" platform: "ensemble")"),
            "ensemble scheduling must be set for ensemble m whose platform is ensemble");
  EXPECT_EQ(error(R"(name: "m" backend: "b" ensemble_scheduling { })"),
            "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble");
  EXPECT_EQ(error(R"(name: "m" platform: "caffe")"), "unexpected platform type 'caffe' for m");
  EXPECT_EQ(error(R"(name: "m" platform: "tensorrt_plan" backend: "pytorch")"),
            "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, pytorch");
  EXPECT_EQ(error(R"(name: "m" platform: "tensorrt_plan" backend: "tensorrt")"), "");
  const auto ensemble_error = [&](const std::string& field) {
    return error(("name: 'm' platform: 'ensemble' ensemble_scheduling { } " + field).c_str());
  };
  EXPECT_EQ(ensemble_error("backend: 'b'"),
            "Ensemble model 'm' must have platform type 'ensemble' and empty backend type");
  EXPECT_EQ(ensemble_error("instance_group { count: 1 }"),
            "instance group should not be specified for ensemble 'm'");
  EXPECT_EQ(ensemble_error("optimization { }"),
            "optimization should not be specified for ensemble 'm'");
  EXPECT_EQ(ensemble_error("model_warmup { name: 'w' }"),
            "model_warmup can not be specified for ensemble 'm'");
  EXPECT_EQ(error(R"(name: "m" backend: "b" max_batch_size: 2
                     dynamic_batching { preferred_batch_size: [4] })"),
            "dynamic batching preferred size must be <= max batch size for m");
  EXPECT_EQ(error(R"(name: "m" backend: "b" max_batch_size: 2
                     dynamic_batching { preferred_batch_size: [0] })"),
            "dynamic batching preferred size must be positive for m");
  EXPECT_EQ(error(R"(name: "m" backend: "b" dynamic_batching {
                     priority_levels: 2 default_priority_level: 3 })"),
            "default priority level must be in range [1, 2] for m");
  EXPECT_EQ(error(R"(name: "m" backend: "b" dynamic_batching {
                     priority_levels: 18446744073709551615 default_priority_level: 4294967296 })"),
            "");
  EXPECT_EQ(error(R"(name: "m" backend: "b" sequence_batching {
                     control_input { name: "C" control { int32_false_true: [ 0 ] } } })"),
            "sequence batching control 'int32_false_true' must have exactly 2 entries for "
            "CONTROL_SEQUENCE_START for m");
  EXPECT_EQ(error(R"(name: "m" backend: "b" sequence_batching {
                     control_input { name: "C" } control_input { name: "C" } })"),
            "sequence batching control tensor 'C' is specified for multiple control kinds for m");
  EXPECT_THAT(error(R"(name: "m" backend: "b" sequence_batching {
                       direct { minimum_slot_utilization: 1.5 } })"),
              HasSubstr("range (0.0, 1.0]"));
  EXPECT_THAT(error(R"(name: "m" backend: "b" dynamic_batching { preserve_ordering: true
                       priority_levels: 2 default_priority_level: 1 })"),
              HasSubstr("Only one priority level is allowed when 'preserve_ordering' is true"));
  const std::string late =
      "default_timeout_microseconds: 5 timeout_action: DELAY } preserve_ordering: ";
  const std::string policy = "name: 'm' backend: 'b' dynamic_batching { default_queue_policy { ";
  EXPECT_THAT(error((policy + late + "true }").c_str()), HasSubstr("DELAY as timeout action"));
  EXPECT_EQ(error((policy + late + "false }").c_str()), "");
}

TEST(ValidateTensors, BrokenOnesAreNamed) {
  const auto error = [](const std::string& input) {
    return ValidateTensors(ParseModelConfig("name: 'm' input { " + input + " }")->config).message();
  };
  EXPECT_THAT(error("name: 'a' dims: [1]"), HasSubstr("'data_type'"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8"), HasSubstr("'dims'"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [0]"), HasSubstr("integer >= 1"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [4] reshape { shape: [3] }"),
              HasSubstr("different size"));
  // Of dimensions between the variable ones the products agree too.
  EXPECT_EQ(
      error("name: 'a' data_type: TYPE_INT8 dims: [2, 4, -1, 6] reshape { shape: [8, -1, 6] }"),
      "");
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [4] reshape { shape: [-1] }"),
              HasSubstr("different size"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [-1, 2] reshape { shape: [2, -1] }"),
              HasSubstr("different size"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [-1] reshape { shape: [-1, -1] }"),
              HasSubstr("different number of variable-size dimensions"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [1] is_shape_tensor: true"),
              HasSubstr("only supported for TensorRT"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [1] reshape { }"),
              HasSubstr("empty reshape"));
  EXPECT_THAT(error("name: 'a' data_type: TYPE_INT8 dims: [4] format: FORMAT_NHWC"),
              HasSubstr("3 dims"));
}

TEST(ValidateInstances, GpusThatAreNotThereAreRefused) {
  const auto error = [](const std::string& group) {
    ::inference::ModelConfig config =
        ParseModelConfig("name: 'm' instance_group { " + group + " }")->config;
    NormalizeModelConfig(config);
    return ValidateInstances(config).message();
  };
  EXPECT_EQ(error("kind: KIND_CPU"), "");
  EXPECT_EQ(error("kind: KIND_CPU gpus: [0]"),
            "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs");
  EXPECT_EQ(error("kind: KIND_CPU count: -1"),
            "instance group m_0 of model m has count -1, must be at least 1");
  EXPECT_THAT(error("kind: KIND_GPU gpus: [7]"), HasSubstr("unsupported gpu id 7"));
}

}  // namespace
}  // namespace inflight::serving
