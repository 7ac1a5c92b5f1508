// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hashes the code of an object file.

#include "Identity.h"
#include "support/ManifestSchema.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBufferRef.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace mlir;
using object::ELFObjectFileBase;
using object::ELFSectionRef;

/// The manifest has a section of its own, which is no part of the code.
static constexpr StringRef manifestSection = ".rodata.bsr_manifest";
static constexpr StringRef noHash = "0000000000000000";

Error mlir::bsr::completeManifest(Module &module, json::Object compiler,
                                  ArrayRef<StringRef> features) {
  GlobalVariable *old = module.getNamedGlobal("bsr_step_manifest");
  auto *data = cast<ConstantDataArray>(old->getInitializer());
  json::Value manifest = cantFail(json::parse(data->getAsCString()));
  json::Object &object = *manifest.getAsObject();
  object["compiler"] = std::move(compiler);
  object["target_features"] = json::Array(features);
  object["code"] = noHash;

  std::string complete = formatv("{0}", manifest).str();
  if (std::string error =
          sparse_opt::findManifestError(complete, "the manifest");
      !error.empty())
    return createStringError(error);
  Constant *text = ConstantDataArray::getString(module.getContext(), complete);
  auto *global =
      new GlobalVariable(module, text->getType(), /*isConstant=*/true,
                         GlobalValue::ExternalLinkage, text);
  global->takeName(old);
  global->setSection(manifestSection);
  old->eraseFromParent();
  return Error::success();
}

namespace {
/// Texts and numbers, one behind the other, each with an end.
class Contents {
public:
  void add(StringRef text) {
    add(text.size());
    bytes += text;
  }
  void add(uint64_t number) {
    bytes.append(reinterpret_cast<const char *>(&number), sizeof number);
  }
  uint64_t hash() const { return xxh3_64bits(bytes); }

private:
  std::string bytes;
};
} // namespace

/// The name of the section in which `symbol` is, or "" for one that is in none.
static StringRef getSectionName(const ELFObjectFileBase &file,
                                object::SymbolRef symbol) {
  object::section_iterator section = cantFail(symbol.getSection());
  return section == file.section_end() ? "" : cantFail(section->getName());
}

/// Adds the name of `symbol` and where it is.
static void addSymbol(const ELFObjectFileBase &file, object::SymbolRef symbol,
                      Contents &contents) {
  contents.add(cantFail(symbol.getName()));
  contents.add(getSectionName(file, symbol));
  contents.add(cantFail(symbol.getValue()));
}

/// Adds `section`, or the relocations that it is.
static void addSection(const ELFObjectFileBase &file, ELFSectionRef section,
                       Contents &contents) {
  contents.add(cantFail(section.getName()));
  contents.add(section.getSize());
  if (section.relocations().empty()) {
    if (section.getType() != ELF::SHT_NOBITS)
      contents.add(cantFail(section.getContents()));
    return;
  }
  for (object::ELFRelocationRef relocation : section.relocations()) {
    contents.add(relocation.getOffset());
    contents.add(relocation.getType());
    contents.add(static_cast<uint64_t>(cantFail(relocation.getAddend())));
    object::symbol_iterator symbol = relocation.getSymbol();
    if (symbol != file.symbol_end())
      addSymbol(file, *symbol, contents);
  }
}

/// The hash of what a library has of `file` in memory, but for the manifest.
static uint64_t hashCode(const ELFObjectFileBase &file) {
  Contents contents;
  for (ELFSectionRef section : file.sections()) {
    object::section_iterator target = cantFail(section.getRelocatedSection());
    ELFSectionRef owner = target == file.section_end() ? section : *target;
    if ((owner.getFlags() & ELF::SHF_ALLOC) &&
        cantFail(owner.getName()) != manifestSection)
      addSection(file, section, contents);
  }
  for (object::SymbolRef symbol : file.symbols())
    if (StringRef section = getSectionName(file, symbol);
        !section.empty() && section != manifestSection)
      addSymbol(file, symbol, contents);
  return contents.hash();
}

void mlir::bsr::writeCodeHash(MutableArrayRef<char> object) {
  // The object is this program's own: nothing about it can be wrong.
  auto file = cantFail(object::ObjectFile::createObjectFile(
      MemoryBufferRef(toStringRef(object), "step")));
  const auto &elf = cast<ELFObjectFileBase>(*file);
  std::string member = "\"code\":\"";
  std::string hash = utohexstr(hashCode(elf), /*LowerCase=*/true, /*Width=*/16);
  for (object::SectionRef section : elf.sections()) {
    if (cantFail(section.getName()) != manifestSection)
      continue;
    StringRef manifest = cantFail(section.getContents());
    size_t place = manifest.data() - object.data();
    place += manifest.find(member + noHash.str()) + member.size();
    llvm::copy(hash, object.begin() + place);
  }
}
