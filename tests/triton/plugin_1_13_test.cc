// SPDX-License-Identifier: Apache-2.0
// The plug-in in a server of version 1.13 of the interface, the first that it runs in: this program
// has no function that came later. plugin_basics_test.cc runs here too.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "plugin_fixture.h"

namespace fake_triton {
namespace {

using testing::SizeIs;

[[maybe_unused]] const bool kIsOld = (SetVersion(1, 13), true);

// Those that triton_api.h marks as later ones.
std::vector<std::string> LaterFunctions() {
  std::ifstream file(INFLIGHT_TRITON_API);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::regex declaration(
      R"((TRITON(?:SERVER|BACKEND)_\w+)\([^;]*?\)\s*INFLIGHT_TRITON_LATER;)");
  std::vector<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), declaration), end; i != end; ++i)
    names.push_back((*i)[1]);
  return names;
}

TEST(PluginOf113, FindsNoLaterFunctionInThisProcess) {
  EXPECT_THAT(LaterFunctions(), SizeIs(testing::Ge(14U)));
  for (const std::string& name : LaterFunctions())
    EXPECT_EQ(dlsym(RTLD_DEFAULT, name.c_str()), nullptr) << name;
  EXPECT_NE(dlsym(RTLD_DEFAULT, "TRITONBACKEND_ModelBackend"), nullptr);
}

TEST(PluginOf113, OneInstanceWithoutGroups) {
  TRITONBACKEND_BackendAttribute attributes;
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_GetBackendAttribute",
                            static_cast<TRITONBACKEND_Backend*>(nullptr), &attributes));
  EXPECT_EQ(attributes.num_groups, 1);
  EXPECT_FALSE(attributes.is_parallel);
}

// Such a server tells nobody that a client is gone: the answer is computed to its end.
TEST_F(PluginTest, WhoIsGoneIsAnsweredAllTheSame) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto request = Ask(/*num_tokens=*/40, /*streaming=*/true);
  request->is_cancelled = true;
  Execute(request.get());
  const auto sent = request->WaitUntilReleased();
  size_t num_tokens = 0;
  for (const Sent& each : sent) {
    EXPECT_FALSE(each.error);
    const auto found = each.outputs.find("output_ids");
    num_tokens += found != each.outputs.end() ? found->second.size() : 0;
  }
  EXPECT_EQ(num_tokens, 40U);
  EXPECT_TRUE(sent.back().is_final);
  Unload();
}

// It hands over no parameters of requests: what another server has refused is not seen.
TEST_F(PluginTest, ParametersOfRequestsAreNotSeen) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto plain = Ask(kNumTokens, /*streaming=*/false);
  const auto bytes = Ask(kNumTokens, /*streaming=*/false);
  bytes->parameters = {{.name = "blob", .type = TRITONSERVER_PARAMETER_BYTES, .text = "x"}};
  Execute(plain.get());
  Execute(bytes.get());
  const auto sent = bytes->WaitUntilReleased();
  ASSERT_FALSE(sent.at(0).error) << sent[0].error->message;
  EXPECT_EQ(sent[0].outputs, plain->WaitUntilReleased().at(0).outputs);
  Unload();
  EXPECT_EQ(instance.num_successes, 2);
  EXPECT_EQ(instance.num_responses, 0);  // which such a server does not count
}

TEST_F(PluginTest, ABadRequestEndsWithItsErrorAlone) {
  ASSERT_NO_FATAL_FAILURE(Load());
  const auto bad = Ask(/*num_tokens=*/0, /*streaming=*/false);
  const auto good = Ask(kNumTokens, /*streaming=*/false);
  TRITONBACKEND_Request* batch[] = {bad.get(), good.get()};
  EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelInstanceExecute", &instance,
                            static_cast<TRITONBACKEND_Request**>(batch), uint32_t{2}));
  const auto error = bad->WaitUntilReleased().at(0).error;
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_THAT(error->message, testing::HasSubstr("request_output_len"));
  EXPECT_FALSE(good->WaitUntilReleased().at(0).error);
  Unload();
}

}  // namespace
}  // namespace fake_triton
