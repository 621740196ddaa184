// A library with one number to find.
extern "C" __attribute__((visibility("default"))) const int weft_load_test = WEFT_LOAD_TEST;
