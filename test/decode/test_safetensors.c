/* SPDX-License-Identifier: Apache-2.0 */
/* Headers, good and bad, and the numbers behind them. */
#include <math.h>
#include <stdlib.h>

#include "bench/decode/convert.h"
#include "bench/decode/safetensors.h"
#include "unit/unit.h"

enum { DATA = 24 };

static struct safetensors st;
static struct reason reason;

/* Parse a file with this header, DATA bytes of data, and @a length as the header's length if it is
 * not 0. The bytes lie in a block of their own size, so that a sanitizer sees any step beyond. */
static int parse(const char *header, uint64_t length)
{
    size_t header_bytes = strlen(header);
    size_t bytes = 8 + header_bytes + DATA;
    uint8_t *file = calloc(1, bytes);
    uint64_t shown = length ? length : header_bytes;
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(shown >> (8 * i));
    for (size_t i = 0; i < header_bytes; i++)
        file[8 + i] = (uint8_t)header[i];
    reason.text[0] = '\0';
    int result = safetensors_parse(file, bytes, "file", &st, &reason);
    free(file);
    return result;
}

static void refused(const char *header, const char *pattern)
{
    CU_ASSERT_EQUAL(parse(header, 0), -1);
    CU_ASSERT_EQUAL(reason.code, CODE_BAD_INPUT);
    UNIT_CONTAINS(reason.text, pattern);
}

static void whole_file(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
        "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[24,24]}}   ";
    CU_ASSERT_EQUAL_FATAL(parse(header, 0), 0);
    CU_ASSERT_EQUAL(st.count, 3);
    const struct safetensors_entry *entry = safetensors_find(&st, "b");
    CU_ASSERT_PTR_NOT_NULL_FATAL(entry);
    CU_ASSERT_EQUAL(entry->dtype, SAFETENSORS_F32);
    CU_ASSERT_EQUAL(entry->ndim, 2);
    CU_ASSERT_EQUAL(entry->shape[1], 2);
    CU_ASSERT_EQUAL(entry->begin, 8 + strlen(header) + 8);
    CU_ASSERT_EQUAL(entry->end, 8 + strlen(header) + 24);
    CU_ASSERT_PTR_NOT_NULL(safetensors_find(&st, "none"));
    CU_ASSERT_PTR_NULL(safetensors_find(&st, "c"));
    CU_ASSERT_PTR_NULL(safetensors_find(&st, "__metadata__"));
    UNIT_STRING(safetensors_dtype_name(entry->dtype), "F32");
    safetensors_free(&st);
}

/* One tensor of all the data, with this in place of its fields. */
static void refused_fields(const char *fields, const char *pattern)
{
    char header[512];
    snprintf(header, sizeof(header), "{\"t\":%s}", fields);
    refused(header, pattern);
}

static void bad_fields(void)
{
    refused_fields("7", "unknown dtype");
    refused_fields("{}", "unknown dtype");
    refused_fields("{\"dtype\":\"f32\",\"shape\":[6],\"data_offsets\":[0,24]}", "\"f32\"");
    refused_fields("{\"dtype\":\"F32\",\"data_offsets\":[0,24]}", "no shape");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[-6],\"data_offsets\":[0,24]}", "impossible");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6.0],\"data_offsets\":[0,24]}", "impossible");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,24]}",
                   "impossible");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,6],\"data_offsets\":[0,24]}",
                   "no shape");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6]}", "no two data_offsets");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0]}", "no two");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24,1]}", "no two");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[\"0\",24]}", "no two");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,0]}", "out of range");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[1,25]}", "out of range");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[-24,0]}", "out of range");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,24]}", "take 20");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}", "data has 24");
    refused_fields("{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[4,24]}", "no tensor");
}

static void bad_files(void)
{
    static const uint8_t few[7] = {1};
    refused("", "not JSON");
    refused("[]", "not a JSON object");
    refused("{\"a\":", "not JSON");
    refused("{}", "data has 24 bytes, but its tensors 0");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[8,24]}}",
            "\"a\" and \"b\" overlap");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]},"
            "\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
            "not JSON");
    CU_ASSERT_EQUAL(parse("{}", 27), -1);
    UNIT_CONTAINS(reason.text, "header length 27 reaches beyond the file's 34 bytes");
    CU_ASSERT_EQUAL(parse("{}", UINT64_MAX), -1);
    UNIT_CONTAINS(reason.text, "header length 18446744073709551615 reaches beyond");
    CU_ASSERT_EQUAL(safetensors_parse(few, sizeof(few), "file", &st, &reason), -1);
    UNIT_CONTAINS(reason.text, "only 7 bytes");
}

static void conversions(void)
{
    static const uint8_t bf16[] = {0x80, 0x3f, 0x00, 0xc0, 0x49, 0x40};
    static const uint8_t f16[] = {0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b};
    float values[3];
    convert_to_float(SAFETENSORS_BF16, bf16, 3, values);
    CU_ASSERT_EQUAL(values[0], 1.0f);
    CU_ASSERT_EQUAL(values[1], -2.0f);
    CU_ASSERT_EQUAL(values[2], 3.140625f);
    convert_to_float(SAFETENSORS_F16, f16, 3, values);
    CU_ASSERT_EQUAL(values[0], 1.0f);
    CU_ASSERT_EQUAL(values[1], -2.0f);
    CU_ASSERT_EQUAL(values[2], 65504.0f);
    CU_ASSERT_EQUAL(convert_half(0x0001), 0x1p-24f);
    CU_ASSERT_EQUAL(convert_half(0x83ff), -1023 * 0x1p-24f);
    CU_ASSERT_EQUAL(convert_half(0x0400), 0x1p-14f);
    CU_ASSERT(isinf(convert_half(0xfc00)) && convert_half(0xfc00) < 0);
    CU_ASSERT(isnan(convert_half(0x7e00)));
    CU_ASSERT(convert_knows(SAFETENSORS_F32) && !convert_knows(SAFETENSORS_I16));
}

int main(void)
{
    CU_TestInfo tests[] = {{"a whole file", whole_file},
                           {"bad fields", bad_fields},
                           {"bad files", bad_files},
                           {"stored numbers", conversions},
                           CU_TEST_INFO_NULL};
    return unit_run(tests);
}
