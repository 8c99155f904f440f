// SPDX-License-Identifier: Apache-2.0
#include "conversation/shorter_conversation.h"

#include <gmock/gmock.h>

#include <string>

namespace inflight::conversation {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Of messages of these roles, told by their first letters; the content is the index.
Conversation Of(const std::string& roles) {
  std::string messages;
  for (size_t i = 0; i < roles.size(); ++i) {
    const char* const role = roles[i] == 's'   ? "system"
                             : roles[i] == 'u' ? "user"
                             : roles[i] == 'a' ? "assistant"
                                               : "tool";
    messages += std::string(i > 0 ? "," : "") + R"({"role":")" + role + R"(","content":")" +
                std::to_string(i) + "\"}";
  }
  return {.variables = "{\"messages\":[" + messages + R"(],"tools":[1],"k":"v"})",
          .with_texts = {},
          .mark = "m",
          .continued = {}};
}

TEST(ShorterConversation, BeginsWithMessagesOfTheUser) {
  EXPECT_THAT(LaterBegins(Of("suauau")), ElementsAre(3, 5));
  EXPECT_THAT(LaterBegins(Of("su")), IsEmpty());
  EXPECT_THAT(LaterBegins(Of("u")), IsEmpty());
  EXPECT_THAT(LaterBegins(Of("usu")), ElementsAre(2));
}

TEST(ShorterConversation, OfALongTurnOfCallsTheFirstOnesGo) {
  EXPECT_THAT(LaterBegins(Of("suatatt")), ElementsAre(2, 4));
  EXPECT_THAT(LaterBegins(Of("uauatat")), ElementsAre(2, 3, 5));
}

TEST(ShorterConversation, MessagesOfTheSystemStay) {
  EXPECT_EQ(BeginningAt(Of("suasu"), 4).variables,
            R"({"messages":[{"role":"system","content":"0"},{"role":"system","content":"3"},)"
            R"({"role":"user","content":"4"}],"tools":[1],"k":"v"})");
  EXPECT_EQ(BeginningAt(Of("suasu"), 4).mark, "m");
}

}  // namespace
}  // namespace inflight::conversation
