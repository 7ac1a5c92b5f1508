#include "Lanes.h"
bool ptx::decodeBulkCopy(Decoder &) { return false; }
void ptx::land(Cluster &, BulkCopy &) {}
