// SPDX-License-Identifier: Apache-2.0
#include "executor/request_fields.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <type_traits>

#include "base/byte_fields.h"
#include "parameters/parameters.h"

namespace inflight::executor {
namespace {

template <typename T>
struct ValueOf {
  using Type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

auto& FieldOf(Request& request, auto member) {
  if constexpr (std::is_invocable_v<decltype(member), SamplingParams&>)
    return request.sampling.*member;
  else
    return request.output.*member;
}

// Journals and ranks that are processes get what a client asked for.
TEST(RequestFields, EveryParameterOfTheTableIsWrittenAndRead) {
  for (const parameters::Parameter& parameter : parameters::All())
    std::visit(
        [&](auto member) {
          Request written;
          auto& field = FieldOf(written, member);
          using Value = typename ValueOf<std::remove_reference_t<decltype(field)>>::Type;
          Value other = 3;
          if constexpr (std::is_same_v<Value, bool>) other = !field;
          field = other;
          std::string bytes;
          ByteWriter writer(&bytes);
          VisitRequest(writer, written);
          ByteReader reader(bytes);
          Request read;
          VisitRequest(reader, read);
          EXPECT_TRUE(reader.ok() && reader.left() == 0) << parameter.field;
          EXPECT_EQ(FieldOf(read, member), field)
              << parameter.field << ": add it to VisitSampling or VisitRequest";
        },
        parameter.member);
}

}  // namespace
}  // namespace inflight::executor
