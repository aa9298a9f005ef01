/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "parts.h"

int main(void)
{
    printf("%d\n", part1() + part2() + part3() + part4() + part5());
    return 0;
}
