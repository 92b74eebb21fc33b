/* Creates, writes, stats, opens and removes files below a directory: files DIRECTORY COUNT. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3 || chdir(argv[1]) != 0)
        return 2;
    int count = atoi(argv[2]);
    char name[32];
    struct stat found;
    mkdir("e", 0755);
    for (int phase = 0; phase < 3; phase++)
        for (int i = 0; i < count; i++) {
            snprintf(name, sizeof name, "e/f%d", i);
            int fd = -1;
            if (phase == 0) {
                fd = open(name, O_CREAT | O_RDWR, 0644);
                if (fd < 0 || write(fd, "x", 1) != 1)
                    return 1;
            } else if (phase == 1) {
                if (stat(name, &found) != 0 || (fd = open(name, O_RDONLY)) < 0)
                    return 1;
            } else if (unlink(name) != 0)
                return 1;
            if (fd >= 0)
                close(fd);
        }
    return 0;
}
