/* Runs a program that may write below a directory alone, by Landlock's rules for paths: rules DIRECTORY PROGRAM… */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL 0x1fffULL /* what the first version knows */
#define READ (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

static int allow(int ruleset, const char *path, unsigned long long access) {
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = open(path, O_PATH)};
    int failed = rule.parent_fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent_fd);
    return failed;
}

int main(int argc, char **argv) {
    struct landlock_ruleset_attr attributes = {.handled_access_fs = ALL};
    int ruleset = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0);
    if (argc < 3 || ruleset < 0 || allow(ruleset, argv[1], ALL))
        return 2;
    DIR *root = opendir("/");
    for (struct dirent *entry; root && (entry = readdir(root));) {
        char path[300];
        snprintf(path, sizeof path, "/%s", entry->d_name);
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "dev") && entry->d_type == DT_DIR)
            allow(ruleset, path, READ);
    }
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_landlock_restrict_self, ruleset, 0))
        return 2;
    execvp(argv[2], argv + 2);
    return 1;
}
