import java.nio.charset.StandardCharsets;
import java.util.List;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * Reads keys from standard input, one a line, and prints for each what the Java client makes of it:
 * key, murmur2 as a signed 32-bit number, and the partition for each count given as argument; tab-separated.
 */
public final class Murmur2 {
    public static void main(String[] counts) throws Exception {
        List<String> keys = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
        StringBuilder out = new StringBuilder();
        for (String key : keys) {
            byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
            out.append(key).append('\t').append(Utils.murmur2(bytes));
            for (String count : counts) {
                out.append('\t').append(BuiltInPartitioner.partitionForKey(bytes, Integer.parseInt(count)));
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    private Murmur2() {}
}
