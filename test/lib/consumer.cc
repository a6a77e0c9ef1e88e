/* SPDX-License-Identifier: Apache-2.0 */
/* What a user's C++ program needs of an installation. */
#include <cstdio>
#include <cstring>

#include <stepaf/af_tensor.hpp>

int main()
{
    try {
        /* Refused: it is empty. */
        stepaf::context().commit();
        return 1;
    } catch (const stepaf::error &failure) {
        if (failure.status() != STEPAF_ERR_HANDLE)
            return 1;
    }
    std::printf("C++ %ld, header %s, library %s\n", __cplusplus, STEPAF_VERSION_STRING,
                stepaf_version());
    return std::strcmp(STEPAF_VERSION_STRING, stepaf_version()) != 0;
}
