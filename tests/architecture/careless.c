/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin file as it should not be: a second export, an import from the host; the build adds a
 * search path and an executable stack. It is looked at and never loaded. */
extern int frt_core_exec(void);
extern const int frt_plugin_v1;
const int frt_plugin_v1 = 1;
int helper(void);
int helper(void) {
  return frt_core_exec();
}
