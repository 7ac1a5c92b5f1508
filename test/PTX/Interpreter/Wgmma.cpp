#include "Lanes.h"
bool ptx::decodeWgmma(Decoder &) { return false; }
