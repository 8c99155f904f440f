// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/names_elsewhere.h"

#include <gmock/gmock.h>

namespace inflight::openai {
namespace {

using testing::HasSubstr;
using testing::Optional;

TEST(NamesElsewhereTest, AMemberIsMeantByTheNameThatItsBodyHas) {
  EXPECT_THAT(MemberElsewhere("n_predict", kCompletion), Optional(HasSubstr("'max_tokens'")));
  EXPECT_THAT(MemberElsewhere("max_tokens", kResponse), Optional(HasSubstr("'max_output_tokens'")));
  EXPECT_THAT(MemberElsewhere("max_output_tokens", kChat), Optional(HasSubstr("'max_tokens'")));
  EXPECT_THAT(MemberElsewhere("stop", kMessages), Optional(HasSubstr("'stop_sequences'")));
  EXPECT_THAT(MemberElsewhere("stop_sequences", kChat), Optional(HasSubstr("'stop'")));
  EXPECT_THAT(MemberElsewhere("prompt", kChat), Optional(HasSubstr("'messages'")));
  EXPECT_THAT(MemberElsewhere("messages", kResponse), Optional(HasSubstr("'input'")));
  EXPECT_THAT(MemberElsewhere("messages", kCompletion), Optional(HasSubstr("'prompt'")));
  EXPECT_THAT(MemberElsewhere("content", kTokenize), Optional(HasSubstr("'prompt'")));
  EXPECT_THAT(MemberElsewhere("json_schema", kResponse), Optional(HasSubstr("'text'")));
  EXPECT_THAT(MemberElsewhere("enable_thinking", kMessages),
              Optional(HasSubstr("'chat_template_kwargs'")));
  EXPECT_THAT(MemberElsewhere("system", kChat), Optional(HasSubstr("'messages'")));
}

TEST(NamesElsewhereTest, WhatHasNoNameHereHasARemedy) {
  EXPECT_THAT(MemberElsewhere("extra_body", kChat), Optional(HasSubstr("put them there")));
  EXPECT_THAT(MemberElsewhere("options", kChat), Optional(HasSubstr("in the body itself")));
}

TEST(NamesElsewhereTest, AnotherNameIsTheNearest) {
  EXPECT_THAT(MemberElsewhere("temprature", kChat),
              Optional(std::string("did you mean 'temperature'?")));
  EXPECT_EQ(MemberElsewhere("id_slot_of_a_server", kChat), std::nullopt);
  EXPECT_EQ(MemberElsewhere(std::string(100, 'a'), kChat), std::nullopt);
}

TEST(NamesElsewhereTest, APathSaysWhereToAsk) {
  EXPECT_THAT(PathElsewhere("/chat/completions"), HasSubstr("here it is /v1/chat/completions; "));
  EXPECT_THAT(PathElsewhere("/api/chat"), HasSubstr("here it is /v1/chat/completions; "));
  EXPECT_THAT(PathElsewhere("/api/pull"), HasSubstr("here it is /v1, as OpenAI's API"));
  EXPECT_THAT(PathElsewhere("/openai/deployments/a/chat/completions"),
              HasSubstr("here it is /v1, "));
  EXPECT_EQ(PathElsewhere("/v1/v1/messages"),
            "the base URL of the client and its path both have /v1");
  EXPECT_EQ(PathElsewhere("/v1/chat/completion"), "did you mean /v1/chat/completions?");
  EXPECT_EQ(PathElsewhere("/v1/chat/completions/"), "did you mean /v1/chat/completions?");
  EXPECT_EQ(PathElsewhere("/v1/message"), "did you mean /v1/messages?");
  for (const char* path : {"/v1/images/generations", "/v1/moderations", "/v1/files", "/v1/"})
    EXPECT_THAT(PathElsewhere(path), HasSubstr("the API has /v1/models")) << path;
}

// What Triton answers with "Not Found" stays so, but for paths of other servers.
TEST(NamesElsewhereTest, OtherPathsAreLeftToOthers) {
  for (const char* path :
       {"/", "/v2", "/v2/models", "/metrics", "/apis", "/model", "/v1", "/v1x", "/nope"})
    EXPECT_FALSE(IsPathElsewhere(path)) << path;
  for (const char* path : {"/models", "/models/", "/api/tags", "/openai/v1/models"})
    EXPECT_TRUE(IsPathElsewhere(path)) << path;
}

}  // namespace
}  // namespace inflight::openai
