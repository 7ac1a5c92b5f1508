// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attributes that front ends and passes leave on functions, arguments,
// results and operations. BSRDialect.td has what they are; the dialect verifies
// them.

#ifndef BSR_DIALECT_ATTRIBUTES_H
#define BSR_DIALECT_ATTRIBUTES_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr::attrs {

/// A discardable attribute of the dialect, whose name and type its `Helper`
/// has. What is read is null if there is none.
template <typename Helper>
struct Discardable {
  using Type = decltype(std::declval<Helper &>().getAttr(nullptr));
  static constexpr StringLiteral name = Helper::getNameStr();

  constexpr operator StringRef() const { return name; }

  /// That of an operation.
  Type get(Operation *op) const { return op->getAttrOfType<Type>(name); }
  bool isOn(Operation *op) const { return op->hasAttr(name); }
  void set(Operation *op, Type value) const { op->setAttr(name, value); }
  void remove(Operation *op) const { op->removeAttr(name); }

  /// That of argument or result `index` of a function.
  template <typename Func>
  Type ofArg(Func func, unsigned index) const {
    return func.template getArgAttrOfType<Type>(index, name);
  }
  template <typename Func>
  void setOfArg(Func func, unsigned index, Type value) const {
    func.setArgAttr(index, name, value);
  }
  template <typename Func>
  Type ofResult(Func func, unsigned index) const {
    return func.template getResultAttrOfType<Type>(index, name);
  }
  template <typename Func>
  void setOfResult(Func func, unsigned index, Type value) const {
    func.setResultAttr(index, name, value);
  }

  /// That in the attributes of an argument or a result.
  Type get(DictionaryAttr list) const { return list.getAs<Type>(name); }
  void set(NamedAttrList &list, Type value) const { list.set(name, value); }
  void remove(NamedAttrList &list) const { list.erase(name); }
  NamedAttribute with(Type value) const { return {name, value}; }
};

inline constexpr Discardable<BSRDialect::AccumulatesAttrHelper> accumulates;
inline constexpr Discardable<BSRDialect::AliasesAttrHelper> aliases;
inline constexpr Discardable<BSRDialect::ArenaBytesAttrHelper> arenaBytes;
inline constexpr Discardable<BSRDialect::AttentionAttrHelper> attention;
inline constexpr Discardable<BSRDialect::CarriedAttrHelper> carried;
inline constexpr Discardable<BSRDialect::CommunicatesAttrHelper> communicates;
inline constexpr Discardable<BSRDialect::DensityAttrHelper> density;
inline constexpr Discardable<BSRDialect::FlopsAttrHelper> flops;
inline constexpr Discardable<BSRDialect::GroupedAttrHelper> grouped;
inline constexpr Discardable<BSRDialect::InitAttrHelper> init;
inline constexpr Discardable<BSRDialect::KindAttrHelper> kind;
inline constexpr Discardable<BSRDialect::LanesAttrHelper> lanes;
inline constexpr Discardable<BSRDialect::LeftDenseAttrHelper> leftDense;
inline constexpr Discardable<BSRDialect::LiveBytesAttrHelper> liveBytes;
inline constexpr Discardable<BSRDialect::MarkAttrHelper> mark;
inline constexpr Discardable<BSRDialect::MaskAttrHelper> mask;
inline constexpr Discardable<BSRDialect::MasksAttrHelper> masks;
inline constexpr Discardable<BSRDialect::MicroBatchesAttrHelper> microBatches;
inline constexpr Discardable<BSRDialect::NameAttrHelper> name;
inline constexpr Discardable<BSRDialect::OriginAttrHelper> origin;
inline constexpr Discardable<BSRDialect::PanelsAttrHelper> panels;
inline constexpr Discardable<BSRDialect::PatternAttrHelper> pattern;
inline constexpr Discardable<BSRDialect::PatternNumberAttrHelper> patternNumber;
inline constexpr Discardable<BSRDialect::PatternsAttrHelper> patterns;
inline constexpr Discardable<BSRDialect::PeakAttrHelper> peak;
inline constexpr Discardable<BSRDialect::ProductsAttrHelper> products;
inline constexpr Discardable<BSRDialect::RecomputedAttrHelper> recomputed;
inline constexpr Discardable<BSRDialect::ReplicasAttrHelper> replicas;
inline constexpr Discardable<BSRDialect::ResultAttrHelper> result;
inline constexpr Discardable<BSRDialect::RoleAttrHelper> role;
inline constexpr Discardable<BSRDialect::RootAttrHelper> root;
inline constexpr Discardable<BSRDialect::ScheduleAttrHelper> schedule;
inline constexpr Discardable<BSRDialect::ScoreNormAttrHelper> scoreNorm;
inline constexpr Discardable<BSRDialect::ScoresAttrHelper> scores;
inline constexpr Discardable<BSRDialect::ShardedAttrHelper> sharded;
inline constexpr Discardable<BSRDialect::StagesAttrHelper> stages;
inline constexpr Discardable<BSRDialect::StoredAttrHelper> stored;
inline constexpr Discardable<BSRDialect::TargetAttrHelper> target;
inline constexpr Discardable<BSRDialect::TimersAttrHelper> timers;
inline constexpr Discardable<BSRDialect::UnmaskedAttrHelper> unmasked;
inline constexpr Discardable<BSRDialect::UnsignedAttrHelper> isUnsigned;
inline constexpr Discardable<BSRDialect::UnusedAttrHelper> unused;
inline constexpr Discardable<BSRDialect::WholeShapesAttrHelper> wholeShapes;
inline constexpr Discardable<BSRDialect::WorkAttrHelper> work;

} // namespace mlir::bsr::attrs

#endif // BSR_DIALECT_ATTRIBUTES_H
