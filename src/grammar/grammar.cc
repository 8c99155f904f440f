// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <utility>

namespace inflight::grammar {

NodeId Grammar::Add(const Node& node) {
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Grammar::AddParent(Node::Kind kind, std::span<const NodeId> parts) {
  const auto first = static_cast<uint32_t>(children_.size());
  children_.insert(children_.end(), parts.begin(), parts.end());
  return Add({kind, first, static_cast<uint32_t>(parts.size())});
}

NodeId Grammar::Bytes(std::string_view bytes) {
  const auto first = static_cast<uint32_t>(bytes_.size());
  bytes_ += bytes;
  return Add({Node::Kind::kBytes, first, static_cast<uint32_t>(bytes.size())});
}

NodeId Grammar::Chars(const CharSet& set) {
  const auto first = static_cast<uint32_t>(chars_.size());
  chars_.insert(chars_.end(), set.ranges().begin(), set.ranges().end());
  return Add({Node::Kind::kChars, first, static_cast<uint32_t>(set.ranges().size())});
}

NodeId Grammar::Sequence(std::span<const NodeId> parts) {
  return parts.size() == 1 ? parts[0] : AddParent(Node::Kind::kSequence, parts);
}

NodeId Grammar::Choice(std::span<const NodeId> parts) {
  return parts.size() == 1 ? parts[0] : AddParent(Node::Kind::kChoice, parts);
}

NodeId Grammar::Repeat(NodeId part, uint32_t min, uint32_t max) {
  const NodeId id = AddParent(Node::Kind::kRepeat, std::span(&part, 1));
  nodes_[id].min = min;
  nodes_[id].max = max;
  return id;
}

NodeId Grammar::Call(RuleId rule) { return Add({Node::Kind::kCall, rule, 0}); }

NodeId Grammar::List(NodeId separator, std::span<const ListPart> parts) {
  std::vector<NodeId> children = {separator};
  for (const ListPart& part : parts) {
    children.push_back(part.node);
    children.push_back(part.is_required ? 1 : 0);
  }
  return AddParent(Node::Kind::kList, children);
}

RuleId Grammar::AddRule(std::string name, NodeId body) {
  rules_.push_back({std::move(name), body});
  return static_cast<RuleId>(rules_.size() - 1);
}

RuleId Grammar::AddRule(std::string name, std::shared_ptr<const Dfa> dfa) {
  rules_.push_back({std::move(name), 0, std::move(dfa)});
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace inflight::grammar
