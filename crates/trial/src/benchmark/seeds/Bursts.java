import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/**
 * A server of many threads that work in bursts: each request compresses and reads back what it got through zip streams,
 * whose native memory comes from malloc, and uses direct buffers. Small ones live on between large ones that soon die.
 *
 * Source: own, after "Handling native memory fragmentation of glibc" (2021). Arguments and the printed line are those of
 * the other workloads (workload.h): THREADS small|large IDLE_MS FORM; FORM is `bursts`, or `random:SEED`, which draws the
 * sizes of the buffers and the pauses between bursts.
 */
public final class Bursts {
    private static final int PAUSE_MS = 3000;
    private static final int KEPT_BYTES = 200;
    private static final int KEPT_A_REQUEST = 8;

    private final int threads, bursts, requests, idleMs;
    private final Long seed;
    private final CyclicBarrier step;
    private final List<List<ByteBuffer>> kept = new ArrayList<>();

    private Bursts(int threads, boolean isLarge, Long seed) {
        this.threads = threads;
        this.seed = seed;
        bursts = isLarge ? 8 : 3;
        requests = isLarge ? 12 : 4;
        idleMs = isLarge ? 12000 : 4000;
        step = new CyclicBarrier(threads + 1);
        for (int i = 0; i < threads; i++) kept.add(new ArrayList<>());
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 4 && arguments.length != 5) {
            System.err.println("Bursts: expected THREADS small|large IDLE_MS FORM");
            System.exit(2);
        }
        // The name of the workload comes first, as for the others, where the program's own name stands.
        String[] words = arguments.length == 5 ? Arrays.copyOfRange(arguments, 1, 5) : arguments;
        Long seed = words[3].startsWith("random:") ? Long.valueOf(words[3].substring(7)) : null;
        new Bursts(Integer.parseInt(words[0]), words[1].equals("large"), seed).run();
    }

    private void run() throws Exception {
        long startKib = residentKib(), startFaults = minorFaults(), startedNs = System.nanoTime();
        Thread[] pool = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int index = i;
            pool[i] = new Thread(() -> work(index));
            pool[i].start();
        }
        Random pauses = new Random(seed == null ? 0 : seed);
        for (int burst = 0; burst < bursts; burst++) {
            step.await();
            step.await();
            System.gc(); // direct buffers are freed when the collector finds them dead
            if (burst + 1 < bursts) Thread.sleep(seed == null ? PAUSE_MS : pauses.nextInt(5001));
        }
        double seconds = (System.nanoTime() - startedNs) * 1e-9;
        long endKib = residentKib(), faults = minorFaults() - startFaults;
        Thread.sleep(idleMs);
        long idleKib = residentKib();
        long mappings = Files.lines("/proc/self/maps");
        step.await();
        for (Thread thread : pool) thread.join();
        long keptBytes = 0;
        for (List<ByteBuffer> of : kept) for (ByteBuffer buffer : of) keptBytes += buffer.capacity();
        // Without the user's language, which may write 1,5 for 1.5.
        System.out.printf(Locale.ROOT, "workload name=jvm threads=%d operations=%d seconds=%.6f live_peak=%d rss_start_kib=%d "
                + "rss_end_kib=%d rss_idle_kib=%d mappings=%d check=0 faults=%d kept_kib=%d%n",
                threads, (long) threads * bursts * requests, seconds, keptBytes, startKib, endKib, idleKib, mappings,
                faults, keptBytes / 1024);
    }

    private void work(int index) {
        try {
            Random random = new Random(index * 7919L + (seed == null ? 0 : seed));
            for (int burst = 0; burst < bursts; burst++) {
                step.await();
                for (int i = 0; i < requests; i++) request(index, random);
                step.await();
            }
            step.await(); // a pool's threads wait for work that does not come
        } catch (InterruptedException | BrokenBarrierException | IOException error) {
            System.err.println("Bursts: " + error);
            System.exit(1);
        }
    }

    private void request(int index, Random random) throws IOException {
        int bytes = seed == null ? 16 << 10 : 4 << 10 << random.nextInt(4);
        byte[] body = new byte[bytes];
        for (int i = 0; i < bytes; i++) body[i] = (byte) ('a' + random.nextInt(6));

        ByteBuffer large = ByteBuffer.allocateDirect(64 << 10 << random.nextInt(3));
        for (int at = 0; at < large.capacity(); at += 4096) large.put(at, (byte) 1);

        ByteArrayOutputStream packed = new ByteArrayOutputStream(bytes);
        try (GZIPOutputStream zip = new GZIPOutputStream(packed)) {
            zip.write(body);
            for (int i = 0; i < KEPT_A_REQUEST; i++) {
                ByteBuffer small = ByteBuffer.allocateDirect(KEPT_BYTES + random.nextInt(KEPT_BYTES));
                small.putLong(0, index);
                kept.get(index).add(small);
            }
        }
        byte[] back;
        try (GZIPInputStream unzip = new GZIPInputStream(new ByteArrayInputStream(packed.toByteArray()))) {
            back = unzip.readAllBytes();
        }
        if (!Arrays.equals(body, back) || large.get(0) != 1) throw new IOException("a request did not come back as it was");
        for (ByteBuffer small : kept.get(index))
            if (small.getLong(0) != index) throw new IOException("a small buffer did not hold what was written");
    }

    private static long residentKib() throws IOException {
        for (String line : Files.text("/proc/self/smaps_rollup").split("\n"))
            if (line.startsWith("Rss:")) return Long.parseLong(line.replaceAll("[^0-9]", ""));
        return -1;
    }

    private static long minorFaults() throws IOException {
        String text = Files.text("/proc/self/stat");
        return Long.parseLong(text.substring(text.lastIndexOf(')') + 2).split(" ")[7]);
    }

    /** Files of /proc, which have no length. */
    private static final class Files {
        static String text(String path) throws IOException {
            try (RandomAccessFile file = new RandomAccessFile(path, "r")) {
                ByteArrayOutputStream text = new ByteArrayOutputStream();
                byte[] buffer = new byte[4096];
                for (int length; (length = file.read(buffer)) > 0; ) text.write(buffer, 0, length);
                return new String(text.toByteArray(), StandardCharsets.ISO_8859_1);
            }
        }

        static long lines(String path) throws IOException {
            return text(path).chars().filter(c -> c == '\n').count();
        }
    }
}
