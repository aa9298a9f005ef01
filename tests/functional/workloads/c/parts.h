/* SPDX-License-Identifier: Apache-2.0 */
int part1(void);
int part2(void);
int part3(void);
int part4(void);
int part5(void);
