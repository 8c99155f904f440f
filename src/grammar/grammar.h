// SPDX-License-Identifier: Apache-2.0
// A grammar: rules, each an expression of bytes, characters and other rules. All guides are
// translated to one, and CompileAutomaton makes of it what reads texts.
//
// Expressions are nodes that are named by their numbers; a node may stand in any number of others.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"

namespace inflight::grammar {

using NodeId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kUnlimited = UINT32_MAX;

struct Node {
  enum class Kind : uint8_t {
    kBytes,     // bytes()
    kChars,     // one character of chars()
    kSequence,  // all children, one behind the other; of none: the empty text
    kChoice,    // one of the children; of none: no text
    kRepeat,    // children()[0], [min, max] times
    kCall,      // a text of rule `first`
    // Some of the parts, at least one, in their order and with the separator between them, and all
    // those that must be there: children() are the separator and then for each part its node, and 1
    // where it must be there, else 0.
    kList,
  };
  Kind kind;
  uint32_t first;
  uint32_t size;
  uint32_t min = 0;
  uint32_t max = 0;  // kUnlimited: any number
};

struct Dfa;  // rule_dfa.h

struct Rule {
  std::string name;  // as its author knows it, for messages
  NodeId body = 0;
  std::shared_ptr<const Dfa> dfa = {};  // in place of `body`, where it is not null
};

class Grammar {
 public:
  NodeId Bytes(std::string_view bytes);
  NodeId Chars(const CharSet& set);
  NodeId Char(uint32_t c) { return Chars(CharSet({{c, c}})); }
  NodeId Sequence(std::span<const NodeId> parts);
  NodeId Sequence(std::initializer_list<NodeId> parts) { return Sequence(std::span(parts)); }
  NodeId Choice(std::span<const NodeId> parts);
  NodeId Choice(std::initializer_list<NodeId> parts) { return Choice(std::span(parts)); }
  NodeId Repeat(NodeId part, uint32_t min, uint32_t max);
  NodeId Optional(NodeId part) { return Repeat(part, 0, 1); }
  NodeId Call(RuleId rule);
  struct ListPart {
    NodeId node;
    bool is_required;
  };
  NodeId List(NodeId separator, std::span<const ListPart> parts);
  NodeId Empty() { return Sequence({}); }
  NodeId Never() { return Choice({}); }

  RuleId AddRule(std::string name) { return AddRule(std::move(name), Never()); }
  RuleId AddRule(std::string name, NodeId body);
  RuleId AddRule(std::string name, std::shared_ptr<const Dfa> dfa);
  void SetBody(RuleId rule, NodeId body) { rules_[rule].body = body; }

  const Node& node(NodeId id) const { return nodes_[id]; }
  std::string_view bytes(const Node& node) const {
    return std::string_view(bytes_).substr(node.first, node.size);
  }
  std::span<const CharRange> chars(const Node& node) const {
    return std::span(chars_).subspan(node.first, node.size);
  }
  std::span<const NodeId> children(const Node& node) const {
    return std::span(children_).subspan(node.first, node.size);
  }
  std::span<const Rule> rules() const { return rules_; }

  RuleId root = 0;

 private:
  NodeId Add(const Node& node);
  NodeId AddParent(Node::Kind kind, std::span<const NodeId> parts);

  std::vector<Node> nodes_;
  std::string bytes_;
  std::vector<CharRange> chars_;
  std::vector<NodeId> children_;
  std::vector<Rule> rules_;
};

}  // namespace inflight::grammar
