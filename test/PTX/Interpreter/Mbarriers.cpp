#include "Lanes.h"
bool ptx::decodeMbarrier(Decoder &) { return false; }
